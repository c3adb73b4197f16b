"""Watches /proc for processes as they come, and tries to look into each before it is confined.

    watch_proc.py SECONDS COUNT

For so long, and until it has seen so many start. Prints what it got as one JSON line.
"""
import json
import os
import sys
import time

DEADLINE = 25  # seconds
FILES = ("environ", "maps", "mem", "auxv")
LINKS = ("root", "cwd", "exe", "ns/user", "ns/mnt", "ns/net", "ns/pid", "fd/3")


def field(status, name):
    return next((line.split(":", 1)[1].strip() for line in status.split("\n") if line.startswith(name + ":")), "")


def privileged(pid):
    """Has more than a program in here ever has."""
    try:
        status = open(f"/proc/{pid}/status").read()
    except OSError:
        return False
    return (field(status, "CapPrm").strip("0") != "" or field(status, "NoNewPrivs") == "0" or field(status, "Seccomp") == "0") and status


def interfaces(pid):
    try:
        return {line.split(":")[0].strip() for line in open(f"/proc/{pid}/net/dev") if ":" in line}
    except OSError:
        return set()


def named_sockets(pid):
    """Those of the machine's programs have names. The first line is the table's head."""
    try:
        return {line.split()[7] for line in list(open(f"/proc/{pid}/net/unix"))[1:] if len(line.split()) > 7}
    except OSError:
        return set()


def look_into(pid):
    sockets = sorted(named_sockets(pid) - named_sockets("self"))[:3]
    got = [f"net/dev: {name}" for name in interfaces(pid) - interfaces("self") - {"lo"}] + [f"net/unix: {name}" for name in sockets]
    for name in FILES:
        try:
            with open(f"/proc/{pid}/{name}", "rb", buffering=0) as f:
                if name == "mem" or f.read(64):
                    got.append(name)
        except OSError:
            continue
    for name in LINKS:
        try:
            got.append(f"{name} -> {os.readlink(f'/proc/{pid}/{name}')}")
        except OSError:
            continue
    return got


def main():
    begin, gained, new = time.monotonic(), [], 0
    enough, count, end = begin + float(sys.argv[1]), int(sys.argv[2]), begin + DEADLINE
    seen = set(map(int, filter(str.isdigit, os.listdir("/proc"))))
    while time.monotonic() < end and (time.monotonic() < enough or new < count):
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in seen:
                continue
            pid = int(name)
            # As long as it is privileged, again and again.
            new += 1
            while time.monotonic() < end:
                before = privileged(pid)
                if not before:
                    break
                got = look_into(pid)
                if got and privileged(pid):
                    gained.append([pid, got])
                    break
            seen.add(pid)
    print(json.dumps({"new": new, "gained": gained[:5]}))


main()
