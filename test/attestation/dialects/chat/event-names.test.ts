import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { EventParser, type ServerEvent } from '#attestation/dialects/chat/event-parser.ts'

/** Gives all events of the packets, the end included. */
function parseAll(packets: readonly (string | Uint8Array)[]): readonly ServerEvent[] {
  const parser = new EventParser()
  const events = packets.flatMap((packet) => parser.push(Buffer.from(packet)))
  return [...events, ...parser.end()]
}

const data = (text: string): ServerEvent => ({ event: '', data: text })

describe('EventParser', () => {
  it('EventParser gives one event for each blank line, several in one packet', () => {
    expect(parseAll(['data: a\n\ndata: b\n\n'])).toEqual([data('a'), data('b')])
  })

  it.each([
    ['LF', '\n'],
    ['CRLF', '\r\n'],
    ['CR', '\r'],
  ])('EventParser takes %s as a line break', (_, lineBreak) => {
    const text = ['event: error', 'data: one', 'data: two', '', 'data: three', '', ''].join(
      lineBreak,
    )
    expect(parseAll([text])).toEqual([{ event: 'error', data: 'one\ntwo' }, data('three')])
  })

  it('EventParser takes a CR and an LF in two packets as one line break', () => {
    expect(parseAll(['data: a\r', '\ndata: b\r', '\n\r', '\n'])).toEqual([data('a\nb')])
  })

  it('EventParser skips comments, ids, retries, unknown fields and blank lines without data', () => {
    expect(
      parseAll([': ping\n\nid: 7\nretry: 10\nfoo: bar\n\n\n\ndata: a\n: in between\n\n']),
    ).toEqual([data('a')])
  })

  it('EventParser takes one blank after the colon away, and a field without colon as empty', () => {
    expect(parseAll(['data:  two\n\ndata:none\n\ndata\n\n'])).toEqual([
      data(' two'),
      data('none'),
      data(''),
    ])
  })

  it('EventParser drops a byte order mark at the beginning only', () => {
    expect(parseAll(['\uFEFFdata: a\n\n'])).toEqual([data('a')])
    expect(parseAll(['data: a\n\n\uFEFFdata: b\n\n'])).toEqual([data('a')])
    expect(parseAll(['\n\uFEFFdata: b\n\n'])).toEqual([])
  })

  it('EventParser gives the event that no blank line and no line break ends', () => {
    expect(parseAll(['data: a\n'])).toEqual([data('a')])
    expect(parseAll(['data: a'])).toEqual([data('a')])
  })

  it('EventParser replaces bytes that are not UTF-8 and keeps what is around them', () => {
    expect(parseAll([Buffer.from([...Buffer.from('data: a'), 0xff, 0x62, 0x0a, 0x0a])])).toEqual([
      data('a\uFFFDb'),
    ])
  })

  it('EventParser gives the same events wherever the bytes are split', () => {
    const text = Buffer.from(
      '\uFEFF: hi\r\ndata: {"a":"é😀\u0000"}\r\n\r\nevent: error\rdata: x\rdata: y\r\rdata: [DONE]',
    )
    const whole = parseAll([text])
    expect(whole).toHaveLength(3)
    for (let first = 0; first <= text.length; first++)
      for (let second = first; second <= Math.min(text.length, first + 3); second++) {
        const packets = [
          text.subarray(0, first),
          text.subarray(first, second),
          text.subarray(second),
        ]
        expect(parseAll(packets)).toEqual(whole)
      }
    expect(parseAll([...text].map((byte) => Uint8Array.of(byte)))).toEqual(whole)
  })

  it('EventParser gives back any data lines, however they are broken into packets', () => {
    const line = fc
      .string({ unit: 'grapheme' })
      .filter((text) => !/[\r\n\uFEFF]/.test(text) && text.isWellFormed())
    const events = fc.array(fc.array(line, { minLength: 1, maxLength: 3 }), { maxLength: 5 })
    const lineBreak = fc.constantFrom('\n', '\r\n', '\r')
    fc.assert(
      fc.property(events, lineBreak, fc.array(fc.nat(40)), (lists, end, sizes) => {
        const text = lists
          .map((lines) => lines.map((item) => `data: ${item}${end}`).join('') + end)
          .join('')
        const bytes = Buffer.from(text)
        const packets: Uint8Array[] = []
        let position = 0
        for (const size of sizes) {
          packets.push(bytes.subarray(position, position + size))
          position += size
        }
        packets.push(bytes.subarray(position))
        expect(parseAll(packets)).toEqual(lists.map((lines) => data(lines.join('\n'))))
      }),
      { numRuns: 300 },
    )
  })

  it('EventParser says how many bytes wait for the end of their event', () => {
    const parser = new EventParser()
    parser.push(Buffer.from('data: 12345'))
    expect(parser.waitingBytes).toBe(11)
    parser.push(Buffer.from('\ndata:\n'))
    expect(parser.waitingBytes).toBe(7)
    parser.push(Buffer.from('\n'))
    expect(parser.waitingBytes).toBe(0)
  })
})
