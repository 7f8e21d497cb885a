/** Most lines of a machine's output that are kept: its last ones. */
export const CONSOLE_LINES_MAX = 4_000

/** Characters that are kept of one line. */
export const CONSOLE_LINE_LENGTH_MAX = 16_384

/** A line that a machine wrote, without its end, and when: milliseconds of the caller's clock. */
export type ConsoleLine = { readonly text: string; readonly atMs: number }

/** What a machine writes, as it comes. All of it is the guest's: attacker-controlled text. */
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
    this.#lines.push(...pieces.map((text) => ({ text: text.slice(0, CONSOLE_LINE_LENGTH_MAX), atMs })))
    this.#lines = this.#lines.slice(-CONSOLE_LINES_MAX)
    this.#tellWatchers()
  }

  /** No more bytes will come. */
  end(): void {
    this.#hasEnded = true
    this.#tellWatchers()
  }

  text(): string {
    return [...this.#lines.map(({ text }) => text), this.#rest].join('\n')
  }

  /** Gives the first line that `matches`, of those kept and those to come; null when the output or `timeoutMs` ends before. */
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

  #tellWatchers(): void {
    for (const watcher of [...this.#watchers]) watcher()
  }
}
