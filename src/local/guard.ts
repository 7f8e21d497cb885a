import { spawn } from 'node:child_process'

/**
 * A program of its own: runs one child and ends it when the process that started the guard is gone,
 * however it went (kill -9 included). `node guard.ts GRACE_MS COMMAND [ARGUMENT…]`, started with an
 * IPC channel; that channel closing is the sign. The kernel closes it, so nothing has to be tidied
 * up by the process that dies.
 *
 * Reports `started` to its parent once the child runs, or `failed` when it could not be started.
 * Exits as the child does. spawnGuarded (guarded-process.ts) is the other side.
 */
export type GuardReport =
  | { readonly kind: 'started'; readonly pid: number }
  | { readonly kind: 'failed'; readonly message: string }

const [graceText = '', command = '', ...argumentsOfChild] = process.argv.slice(2)
const graceMs = Number(graceText)
if (process.send === undefined || command === '' || !Number.isSafeInteger(graceMs)) {
  process.stderr.write('guard: to be started by spawnGuarded, with an IPC channel\n')
  process.exit(2)
}

// Its output goes where the guard's goes: the guard adds nothing and reads nothing.
const child = spawn(command, argumentsOfChild, { stdio: ['ignore', 'inherit', 'inherit'] })
child.on('spawn', () => {
  if (child.pid !== undefined) report({ kind: 'started', pid: child.pid })
})
child.on('error', (error) => {
  report({ kind: 'failed', message: error.message })
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
  if (child.exitCode !== null || child.signalCode !== null) return
  if (graceMs === 0) {
    child.kill('SIGKILL')
    return
  }
  child.kill('SIGTERM')
  setTimeout(() => child.kill('SIGKILL'), graceMs).unref()
}

function report(what: GuardReport): void {
  // The parent may have gone between two lines: then `disconnect` is on its way and the report is
  // not needed.
  if (process.connected) process.send?.(what, undefined, undefined, () => undefined)
}
