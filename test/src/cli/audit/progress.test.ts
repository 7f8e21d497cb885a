import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createAuditProgress, LINE_INTERVAL_MS } from '../../../../src/cli/audit/audit-report.ts'

function openStream(isTTY: boolean) {
  const stream = Object.assign(new PassThrough(), {
    isTTY,
    columns: 100,
    cursorTo: () => true,
    clearLine: () => true,
  })
  let text = ''
  stream.setEncoding('utf8').on('data', (part: string) => {
    text += part
  })
  return { stream: stream as unknown as NodeJS.WriteStream, text: () => text }
}

describe('createAuditProgress', () => {
  it('writes a line now and then on what is no terminal', async () => {
    const { stream, text } = openStream(false)
    let nowMs = 0
    const progress = createAuditProgress(stream, () => nowMs)
    progress.start('0xab', 100)
    for (const size of [10, 20, 30]) {
      nowMs += LINE_INTERVAL_MS / 2
      progress.update(size)
    }
    progress.stop()
    await new Promise(setImmediate)
    expect(text()).toBe('0xab: 20 of 100 leaves\n')
  })

  it('draws a bar on a terminal', async () => {
    const { stream, text } = openStream(true)
    const progress = createAuditProgress(stream, Date.now)
    progress.start('0xab', 100)
    progress.update(50)
    progress.stop()
    await new Promise(setImmediate)
    expect(text()).toContain('0xab [')
  })
})
