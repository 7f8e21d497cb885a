import { createServer } from 'node:net'
import { join } from 'node:path'
import { BootError } from './boot-error.ts'
import { type GuardedProgram, startGuarded } from './guarded-program.ts'
import { type MachinePlan, machineArguments } from './machine-arguments.ts'
import { type ConsoleLine, MachineConsole } from './machine-console.ts'

/** The emulator, from Debian's package qemu-system-x86. */
export const QEMU = 'qemu-system-x86_64'

/** From the emulator's start to the kernel's first line. Its firmware and the kernel's unpacking take 3 s alone. */
export const KERNEL_TIMEOUT_MS = 60_000

/** A machine whose kernel runs. */
export type Machine = {
  /** qemu's. */
  readonly pid: number
  /** On 127.0.0.1 of this machine; leads to the port of the guest that was asked for. */
  readonly hostPort: number
  /** Milliseconds of performance.now(): when qemu was started, and when the kernel said its first word. */
  readonly startedAtMs: number
  readonly kernelAtMs: number
  /** The end of what was written to its console. */
  console(): string
  /** Gives the first line that `matches`. Rejects with BootError `machine_ended` or `timeout`, which name `what`. */
  waitForLine(what: string, matches: (text: string) => boolean, timeoutMs: number): Promise<ConsoleLine>
  /** Resolves when the machine is gone, by itself or stopped. */
  readonly exited: Promise<void>
  /** Kills it, and resolves when it is gone. */
  stop(): Promise<void>
}

/**
 * Starts a machine and waits until its kernel runs. The machine ends with this process, however that ends. Rejects with
 * BootError `missing_tool`, `machine_ended` or `timeout`.
 */
export async function startMachine(
  plan: Omit<MachinePlan, 'inward' | 'relay'> & { readonly guestPort: number },
): Promise<Machine> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await tryMachine(plan, await findFreePort())
    } catch (error) {
      // Another program can take a port between its choice and its use.
      const isPortLost = error instanceof BootError && /host forwarding rule/i.test(error.message)
      if (!isPortLost || attempt === PORT_ATTEMPTS) throw error
    }
  }
}

const PORT_ATTEMPTS = 3
const RELAY = join(import.meta.dirname, 'relay.ts')
const TAIL_LINES = 30

async function tryMachine(
  plan: Omit<MachinePlan, 'inward' | 'relay'> & { readonly guestPort: number },
  hostPort: number,
): Promise<Machine> {
  const output = new MachineConsole(() => performance.now())
  const startedAtMs = performance.now()
  const words = machineArguments({
    ...plan,
    inward: { hostPort, port: plan.guestPort },
    relay: { command: process.execPath, script: RELAY },
  })
  const program = await startGuarded([QEMU, ...words], (bytes) => output.add(bytes))
  void program.exited.then(() => output.end())
  const waitForLine = createWait(program, output)
  try {
    const { atMs: kernelAtMs } = await waitForLine(
      'the kernel to start',
      (text) => /Linux version |^boot-init: /.test(text),
      KERNEL_TIMEOUT_MS,
    )
    const { pid, exited, stop } = program
    return { pid, hostPort, startedAtMs, kernelAtMs, console: () => output.text(), waitForLine, exited, stop }
  } catch (error) {
    await program.stop()
    throw error
  }
}

function createWait({ exited }: GuardedProgram, output: MachineConsole): Machine['waitForLine'] {
  let hasExited = false
  void exited.then(() => {
    hasExited = true
  })
  return async (what, matches, timeoutMs) => {
    const line = await output.find(matches, timeoutMs)
    if (line !== null) return line
    const said = output.text().trimEnd().split('\n').slice(-TAIL_LINES).join('\n')
    throw hasExited
      ? new BootError('machine_ended', `expected ${what}, but the machine ended:\n${said}`)
      : new BootError('timeout', `expected ${what} within ${timeoutMs} ms:\n${said}`)
  }
}

function findFreePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      const port = typeof address === 'object' && address !== null ? address.port : 0
      server.close(() => resolve(port))
    })
  })
}
