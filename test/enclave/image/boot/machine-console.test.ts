import { describe, expect, it } from 'vitest'
import {
  CONSOLE_LINE_LENGTH_MAX,
  CONSOLE_LINES_MAX,
  MachineConsole,
} from '#enclave/image/boot/machine.ts'

function makeConsole() {
  let time = 0
  const console = new MachineConsole(() => time)
  const write = (text: string, atMs = 0) => {
    time = atMs
    console.add(Buffer.from(text))
  }
  return { console, write }
}

const isReady = (text: string) => text === 'ready'

describe('MachineConsole', () => {
  it('MachineConsole finds a line that comes in pieces, once it is whole', async () => {
    const { console, write } = makeConsole()
    const found = console.find(isReady, 5_000)
    for (const piece of ['re', 'ad', 'y', '\r']) write(piece, 1)
    write('\n', 2)
    write('more\n', 3)
    expect(await found).toEqual({ text: 'ready', atMs: 2 })
    expect(await console.find(isReady, 1)).toEqual({ text: 'ready', atMs: 2 })
  })

  it('MachineConsole puts a character together that is cut in two', async () => {
    const { console } = makeConsole()
    const bytes = Buffer.from('é\n')
    console.add(bytes.subarray(0, 1))
    console.add(bytes.subarray(1))
    expect(await console.find((text) => text === 'é', 1)).not.toBeNull()
  })

  it('MachineConsole gives null when the output ends, or the time', async () => {
    const { console, write } = makeConsole()
    expect(await console.find(isReady, 1)).toBeNull()
    const found = console.find(isReady, 60_000)
    write('readyish\n')
    console.end()
    expect(await found).toBeNull()
    expect(await console.find(isReady, 60_000)).toBeNull()
  })

  it('MachineConsole keeps a bounded part of what a guest writes without end', () => {
    const { console, write } = makeConsole()
    write(`${'x'.repeat(100)}\n`.repeat(CONSOLE_LINES_MAX + 10))
    write('y'.repeat(10 * CONSOLE_LINE_LENGTH_MAX))
    const lines = console.text().split('\n')
    expect(lines).toHaveLength(CONSOLE_LINES_MAX + 1)
    expect(lines.at(-1)).toHaveLength(CONSOLE_LINE_LENGTH_MAX)
  })
})
