import { spawn } from 'node:child_process'

/**
 * A separate program: it runs one child, and kills it when the process that started the guard has
 * ended for any reason (kill -9 included). Usage: `node guard.ts COMMAND [ARGUMENT…]`, started with
 * an IPC channel. The kernel closes the channel when the parent ends, so the parent need not clean
 * up. When the child runs, the guard reports its pid to the parent. If the child cannot run, the
 * reason goes to standard error. The guard exits with the child's exit code. spawnGuarded
 * (guarded-process.ts) is the other side.
 */
export type GuardReady = { readonly kind: 'ready'; readonly pid: number }

const [command, ...argumentsOfChild] = process.argv.slice(2)
if (process.send === undefined || command === undefined) {
  process.stderr.write('guard: to be started by spawnGuarded, with an IPC channel\n')
  process.exit(2)
}

// The child uses the guard's output directly: the guard neither adds to the output nor reads it.
const child = spawn(command, argumentsOfChild, { stdio: ['ignore', 'inherit', 'inherit'] })
child.on('spawn', () => {
  const ready: GuardReady = { kind: 'ready', pid: child.pid ?? 0 }
  // The parent may have ended by now. Then a `disconnect` event follows.
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
// Ctrl-C in a terminal is meant for the parent only. The parent then ends the guard.
process.on('SIGINT', () => undefined)
process.on('SIGHUP', () => undefined)
if (!process.connected) endChild()

function endChild(): void {
  child.kill('SIGKILL')
}
