import { spawn } from 'node:child_process'

/**
 * A program that runs one child, and kills the child when the guard's parent has ended. This works
 * even after a kill -9, because the kernel closes the parent's IPC channel. spawnGuarded
 * (guarded-process.ts) runs `node guard.ts COMMAND [ARGUMENT…]`. The guard reports the child's pid
 * to its parent, and exits with the child's exit code. If the child cannot run, the reason goes to
 * standard error.
 */
export type GuardReady = { readonly kind: 'ready'; readonly pid: number }

const [command, ...argumentsOfChild] = process.argv.slice(2)
if (process.send === undefined || command === undefined) {
  process.stderr.write('guard: to be started by spawnGuarded, with an IPC channel\n')
  process.exit(2)
}

const child = spawn(command, argumentsOfChild, { stdio: ['ignore', 'inherit', 'inherit'] })
child.on('spawn', () => {
  const ready: GuardReady = { kind: 'ready', pid: child.pid ?? 0 }
  // If the parent has ended by now, a `disconnect` event follows.
  if (process.connected) process.send?.(ready, undefined, undefined, () => undefined)
})
child.on('error', (error) => {
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 1
  process.disconnect?.()
})
child.on('exit', (code, signal) => {
  process.exitCode = code ?? (signal === null ? 1 : 128)
  if (process.connected) process.disconnect?.()
})

process.on('disconnect', endChild)
process.on('SIGTERM', endChild)
// Ctrl-C is meant for the parent only, which then ends the guard.
process.on('SIGINT', () => undefined)
process.on('SIGHUP', () => undefined)
if (!process.connected) endChild()

function endChild(): void {
  child.kill('SIGKILL')
}
