#!/usr/bin/env node
// Runs the binary of this system. It is in a package of its own, which npm has installed as an optional dependency.
const { spawn } = require("node:child_process");

const name = `steward-cli-${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "steward.exe" : "steward";
let binary;
try {
    binary = require.resolve(`${name}/${file}`);
} catch {
    console.error(`steward: the package ${name} is not installed. Either Steward has no binary for this system, or npm left out optional dependencies`);
    process.exit(1);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to both; this process stays until the command has ended.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
    console.error(`steward: ${binary}: ${error.message}`);
    process.exit(1);
});
child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
});
