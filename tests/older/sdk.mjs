// The older line of the official SDK, from the packages beside this file.
export * from '@e2b/code-interpreter';
