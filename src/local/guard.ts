import { spawn } from 'node:child_process'

/**
 * A separate program: it runs one child, and kills the child when the guard's parent has ended for
 * any reason (kill -9 included). Usage: `node guard.ts COMMAND [ARGUMENT…]`, started with an IPC
 * channel. The kernel closes the channel when the parent ends. The guard reports the pid of its
 * running child to the parent. If the child cannot run, the reason goes to standard error. The
 * guard exits with the child's exit code. The other side is spawnGuarded (guarded-process.ts).
 */
export type GuardReady = { readonly kind: 'ready'; readonly pid: number }

const [command, ...argumentsOfChild] = process.argv.slice(2)
if (process.send === undefined || command === undefined) {
  process.stderr.write('guard: to be started by spawnGuarded, with an IPC channel\n')
  process.exit(2)
}

// The child writes directly to the guard's output. The guard adds and reads nothing.
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
