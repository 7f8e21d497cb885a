import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { BootError } from './boot-error.ts'
import { type GuardedProgram, startGuarded } from './host-programs.ts'

/** The emulator of Debian's package qemu-system-x86. */
export const QEMU = 'qemu-system-x86_64'

/**
 * Time limit from the emulator's start to the kernel's first line. The firmware and the unpacking
 * of the kernel take 3 s.
 */
const KERNEL_TIMEOUT_MS = 60_000

export type Machine = {
  /** Process id of qemu. */
  readonly pid: number
  /** A port on 127.0.0.1 of the host. qemu forwards it to the requested port of the guest. */
  readonly hostPort: number
  /**
   * When qemu started, and when the kernel wrote its first line: milliseconds of performance.now().
   */
  readonly startedAtMs: number
  readonly kernelAtMs: number
  /** The last lines of the machine's console. */
  console(): string
  /**
   * Returns the first line for which `matches` returns true. Rejects with BootError `machine_ended`
   * or `timeout`, whose message contains `what`.
   */
  waitForLine(
    what: string,
    matches: (text: string) => boolean,
    timeoutMs: number,
  ): Promise<ConsoleLine>
  /** Resolves when the machine has ended or was stopped. */
  readonly exited: Promise<void>
  /** Kills the machine. Resolves when it has ended. */
  stop(): Promise<void>
}

/**
 * Starts a machine and waits until its kernel runs. The machine ends with this process, even if
 * this process is killed. Rejects with BootError `missing_tool`, `machine_ended` or `timeout`.
 */
export async function startMachine(plan: MachineOptions): Promise<Machine> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await tryMachine(plan, await findFreePort())
    } catch (error) {
      // Another program can take the chosen port before qemu opens it.
      const isPortLost = error instanceof BootError && /host forwarding rule/i.test(error.message)
      if (!isPortLost || attempt === PORT_ATTEMPTS) throw error
    }
  }
}

const PORT_ATTEMPTS = 3
const RELAY = join(import.meta.dirname, 'relay.ts')
const TAIL_LINES = 30

type MachineOptions = Omit<MachinePlan, 'inward' | 'relay'> & { readonly guestPort: number }

async function tryMachine(plan: MachineOptions, hostPort: number): Promise<Machine> {
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
    return {
      pid,
      hostPort,
      startedAtMs,
      kernelAtMs,
      console: () => output.text(),
      waitForLine,
      exited,
      stop,
    }
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

export type MachinePlan = {
  readonly accelerator: Accelerator
  readonly kernelPath: string
  readonly ramdiskPath: string
  readonly cmdline: string
  readonly memoryMebibytes: number
  readonly cpus: number
  /** A port on 127.0.0.1 of the host. It leads to the guest's `port`. */
  readonly inward: { readonly hostPort: number; readonly port: number }
  /**
   * Ports of OUTWARD_ADDRESS in the guest's network. Each leads to a port on 127.0.0.1 or a Unix
   * socket of the host.
   */
  readonly outward: readonly { readonly port: number; readonly to: number | string }[]
  /** Program that forwards the data of one connection: Node.js with relay.ts. */
  readonly relay: { readonly command: string; readonly script: string }
}

/** `tcg` emulates the guest's instructions. With `kvm`, the processor runs the guest directly. */
export type Accelerator = 'tcg' | 'kvm'

/** The guest's address, as set by guest/enclave-init. */
const GUEST_ADDRESS = '10.0.2.15'

/** Address of the only host that the guest can reach. guest/enclave-init expects it. */
const OUTWARD_ADDRESS = '10.0.2.100'

/**
 * Returns the arguments for qemu (qemu-system-x86_64, 7.2 and later). The guest has only a console
 * and a network card: no disk, no default devices, no monitor. `restrict=on` blocks all network
 * access except to the listed ports, so the guest reaches neither the host's loopback interface nor
 * qemu's name server.
 */
export function machineArguments(plan: MachinePlan): readonly string[] {
  return [
    '-accel',
    plan.accelerator === 'kvm' ? 'kvm' : 'tcg,thread=multi',
    '-cpu',
    plan.accelerator === 'kvm' ? 'host' : 'max',
    '-machine',
    'pc',
    '-m',
    String(plan.memoryMebibytes),
    '-smp',
    String(plan.cpus),
    ...CONSOLE_ONLY,
    '-kernel',
    plan.kernelPath,
    '-initrd',
    plan.ramdiskPath,
    '-append',
    plan.cmdline,
    '-netdev',
    networkOf(plan),
    // `romfile=`: no boot ROM for the network card, because another package contains the ROM.
    '-device',
    'virtio-net-pci,netdev=net,romfile=',
  ]
}

/** No default devices and no monitor. The machine ends if the guest restarts. */
const CONSOLE_ONLY = [
  '-nodefaults',
  '-no-user-config',
  '-display',
  'none',
  '-monitor',
  'none',
  '-serial',
  'stdio',
  '-no-reboot',
]

function networkOf({ inward, outward, relay }: MachinePlan): string {
  const forwards = outward.map(({ port, to }) => {
    const command = [relay.command, relay.script, String(to)].map(quoteWord).join(' ')
    return `guestfwd=tcp:${OUTWARD_ADDRESS}:${port}-cmd:${escapeValue(command)}`
  })
  return [
    'user,id=net,restrict=on',
    `hostfwd=tcp:127.0.0.1:${inward.hostPort}-${GUEST_ADDRESS}:${inward.port}`,
    ...forwards,
  ].join(',')
}

/** A comma ends a value in qemu's options. Two commas stand for one comma. */
function escapeValue(value: string): string {
  return value.replaceAll(',', ',,')
}

/** Quotes a word for a shell. qemu's network library splits commands like a shell. */
function quoteWord(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`
}

/** Maximum number of kept output lines. The oldest lines are dropped. */
export const CONSOLE_LINES_MAX = 4_000

export const CONSOLE_LINE_LENGTH_MAX = 16_384

/** A line of output without its line end. `atMs`: milliseconds of the caller's clock. */
type ConsoleLine = { readonly text: string; readonly atMs: number }

/** The output of a machine, as it arrives. It is attacker-controlled: the guest writes it. */
export class MachineConsole {
  readonly #now: () => number
  readonly #decoder = new TextDecoder()
  readonly #watchers = new Set<() => void>()
  #lines: ConsoleLine[] = []
  #rest = ''
  #hasEnded = false

  constructor(now: () => number) {
    this.#now = now
  }

  add(bytes: Uint8Array): void {
    const pieces = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split(/\r*\n/)
    this.#rest = (pieces.pop() ?? '').slice(0, CONSOLE_LINE_LENGTH_MAX)
    const atMs = this.#now()
    this.#lines.push(
      ...pieces.map((text) => ({ text: text.slice(0, CONSOLE_LINE_LENGTH_MAX), atMs })),
    )
    this.#lines = this.#lines.slice(-CONSOLE_LINES_MAX)
    this.#notifyWatchers()
  }

  /** Must be called when the output has ended. */
  end(): void {
    this.#hasEnded = true
    this.#notifyWatchers()
  }

  text(): string {
    return [...this.#lines.map(({ text }) => text), this.#rest].join('\n')
  }

  /**
   * Returns the first kept or new line for which `matches` returns true. Returns null if the output
   * ends, or `timeoutMs` passes, before the machine writes such a line.
   */
  async find(matches: (text: string) => boolean, timeoutMs: number): Promise<ConsoleLine | null> {
    const { promise, resolve } = Promise.withResolvers<ConsoleLine | null>()
    const look = () => {
      const found = this.#lines.find(({ text }) => matches(text))
      if (found !== undefined || this.#hasEnded) resolve(found ?? null)
    }
    const timer = setTimeout(() => resolve(null), timeoutMs)
    this.#watchers.add(look)
    try {
      look()
      return await promise
    } finally {
      this.#watchers.delete(look)
      clearTimeout(timer)
    }
  }

  #notifyWatchers(): void {
    for (const watcher of [...this.#watchers]) watcher()
  }
}

/**
 * Time limit for the kernel's first line with KVM, milliseconds. Working KVM takes less than one
 * second.
 */
const KVM_PROBE_MS = 4_000

/**
 * Returns `kvm` if this kernel starts with KVM, otherwise `tcg`. On some machines, /dev/kvm can be
 * opened but no guest ever runs.
 */
export async function chooseAccelerator(kernelPath: string): Promise<Accelerator> {
  const isOpen = await access('/dev/kvm', constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  )
  return isOpen && (await startsWithKvm(kernelPath)) ? 'kvm' : 'tcg'
}

async function startsWithKvm(kernelPath: string): Promise<boolean> {
  const output = new MachineConsole(() => performance.now())
  const words = [
    '-accel',
    'kvm',
    '-cpu',
    'host',
    '-machine',
    'pc',
    '-m',
    '512',
    ...CONSOLE_ONLY,
    '-kernel',
    kernelPath,
    '-append',
    'console=ttyS0 earlyprintk=ttyS0 panic=-1',
  ]
  const program = await startGuarded([QEMU, ...words], (bytes) => output.add(bytes))
  void program.exited.then(() => output.end())
  const line = await output.find((text) => text.includes('Linux version '), KVM_PROBE_MS)
  await program.stop()
  return line !== null
}
