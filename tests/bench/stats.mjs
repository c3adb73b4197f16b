// Figures out of samples.

export function quantile(samples, q) {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

/** Of an even number, the mean of the two in the middle. */
export function median(samples) {
  const sorted = [...samples].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

export const sum = (samples) => samples.reduce((a, b) => a + b, 0);

/**
 * Runs every measurement once in each round, so that what disturbs the machine disturbs all of them alike, each round beginning with
 * another one. measures: { name: async () => figure }. Gives { name: [figure of each round] }.
 */
export async function interleave(rounds, measures) {
  const names = Object.keys(measures);
  const figures = Object.fromEntries(names.map((name) => [name, []]));
  for (let round = 0; round < rounds; round++)
    for (let i = 0; i < names.length; i++) {
      const name = names[(round + i) % names.length];
      figures[name].push(await measures[name]());
    }
  return figures;
}

/** The median of the ratios of each round. */
export const ratio = (ours, theirs) => median(ours.map((figure, round) => figure / theirs[round]));
