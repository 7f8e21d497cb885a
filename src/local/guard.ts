import { spawn } from 'node:child_process'

/**
 * A program of its own: runs one child and kills it when the process that started the guard is
 * gone, however it went (kill -9 included). `node guard.ts COMMAND [ARGUMENT…]`, started with an
 * IPC channel; that channel closing is the sign. The kernel closes it, so nothing has to be tidied
 * up by the process that dies.
 *
 * Reports the child's pid to its parent once it runs; what keeps it from running goes to standard
 * error. Exits as the child does. spawnGuarded (guarded-process.ts) is the other side.
 */
export type GuardReady = { readonly kind: 'ready'; readonly pid: number }

const [command, ...argumentsOfChild] = process.argv.slice(2)
if (process.send === undefined || command === undefined) {
  process.stderr.write('guard: to be started by spawnGuarded, with an IPC channel\n')
  process.exit(2)
}

// Its output goes where the guard's goes: the guard adds nothing and reads nothing.
const child = spawn(command, argumentsOfChild, { stdio: ['ignore', 'inherit', 'inherit'] })
child.on('spawn', () => {
  const ready: GuardReady = { kind: 'ready', pid: child.pid ?? 0 }
  // The parent may have gone meanwhile: then `disconnect` is on its way.
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
// A terminal's Ctrl-C is for the parent, which then ends the guard in its own time.
process.on('SIGINT', () => undefined)
process.on('SIGHUP', () => undefined)
if (!process.connected) endChild()

function endChild(): void {
  child.kill('SIGKILL')
}
