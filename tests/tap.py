"""Runs the unittest cases of a module and prints TAP."""
import sys
import unittest


class TapResult(unittest.TestResult):
    number = 0

    def line(self, verdict, test, note="", details=""):
        self.number += 1
        print(f"{verdict} {self.number} - {test}{note}")
        for text in details.splitlines():
            print(f"# {text}")
        sys.stdout.flush()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line("ok", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line("not ok", test, details=self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.line("not ok", test, details=self.errors[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line("ok", test, note=f" # SKIP {reason}")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            details = (self.failures + self.errors)[-1][1]
            self.line("not ok", subtest, details=details)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.line("ok", test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.line("not ok", test, details="passed, but is marked as an expected failure")


def run(module):
    result = TapResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    print(f"1..{result.number}")
    sys.exit(0 if result.wasSuccessful() else 1)
