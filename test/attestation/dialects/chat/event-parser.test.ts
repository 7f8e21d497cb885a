import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  EventParser,
  EventTooLargeError,
  type ServerEvent,
} from '#attestation/dialects/chat/event-parser.ts'

type Packets = readonly (string | Uint8Array)[]

/** All events of the packets, the end included. */
function parseAll(
  packets: Packets,
  options?: ConstructorParameters<typeof EventParser>[0],
): readonly ServerEvent[] {
  const parser = new EventParser(options)
  const events = packets.flatMap((packet) => parser.push(Buffer.from(packet)))
  return [...events, ...parser.end()]
}

const data = (text: string): ServerEvent => ({ event: '', data: text })

it.each<[string, Packets, readonly ServerEvent[]]>([
  ['several events in one packet', ['data: a\n\ndata: b\n\n'], [data('a'), data('b')]],
  [
    'a CR and an LF in two packets as one line break, an empty packet between them too',
    ['data: a\r', '', '\ndata: b\r', '\n\r', '\n'],
    [data('a\nb')],
  ],
  [
    'comments, other fields and blank lines as nothing',
    [': ping\n\nid: 7\nretry: 10\nfoo: bar\nerror: c\n\n\n\ndata: a\n: in between\n\n'],
    [data('a')],
  ],
  [
    'one blank after the colon as no data, and a field without colon as empty',
    ['data:  two\n\ndata:none\n\ndata\n\n'],
    [data(' two'), data('none'), data('')],
  ],
  ['a byte order mark at the beginning as nothing', ['\uFEFFdata: a\n\n'], [data('a')]],
  ['a byte order mark elsewhere as part of a name', ['data: a\n\n\uFEFFdata: b\n\n'], [data('a')]],
  ['an event that no blank line ends', ['data: a\n'], [data('a')]],
  ['an event that no line break ends', ['data: a'], [data('a')]],
  [
    'bytes that are not UTF-8 as replaced',
    [Buffer.from([...Buffer.from('data: a'), 0xff, 0x62, 0x0a, 0x0a])],
    [data('a\uFFFDb')],
  ],
])('EventParser takes %s', (_, packets, events) => {
  expect(parseAll(packets)).toEqual(events)
})

it.each(['\n', '\r\n', '\r'])('EventParser takes %j as a line break', (lineBreak) => {
  const lines = ['event: error', 'data: one', 'data: two', '', 'data: three', '', '']
  expect(parseAll([lines.join(lineBreak)])).toEqual([
    { event: 'error', data: 'one\ntwo' },
    data('three'),
  ])
})

it('EventParser takes the line in which llama.cpp reports an error, also byte by byte', () => {
  const text = 'error: {"message":"m"}\n\n'
  const bytes = [...Buffer.from(text)].map((byte) => Uint8Array.of(byte))
  for (const packets of [[text], bytes])
    expect(parseAll(packets, { errorLines: true })).toMatchObject([{ data: '{"message":"m"}' }])
})

it('EventParser gives the same events wherever the bytes are split, in any two places', () => {
  const text = Buffer.from(
    '\uFEFF: hi\r\ndata: {"a":"é😀\u0000"}\r\n\r\nevent: error\rdata: x\rdata: y\r\rdata: [DONE]',
  )
  const whole = parseAll([text])
  expect(whole).toHaveLength(3)
  for (let first = 0; first <= text.length; first++)
    for (let second = first; second <= text.length; second++) {
      const parts = [text.subarray(0, first), text.subarray(first, second), text.subarray(second)]
      expect(parseAll(parts)).toEqual(whole)
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
    fc.property(events, lineBreak, fc.array(fc.nat(40)), (lists, end, cuts) => {
      const text = lists
        .map((lines) => lines.map((item) => `data: ${item}${end}`).join('') + end)
        .join('')
      let rest = Buffer.from(text)
      const packets = cuts.map((size) => {
        const packet = rest.subarray(0, size)
        rest = rest.subarray(size)
        return packet
      })
      expect(parseAll([...packets, rest])).toEqual(lists.map((lines) => data(lines.join('\n'))))
    }),
  )
})

it('EventParser says how many bytes wait for the end of their event', () => {
  const parser = new EventParser()
  for (const [packet, waiting] of [
    ['data: 12345', 11],
    ['\ndata:\n', 7],
    ['\n', 0],
  ] as const) {
    parser.push(Buffer.from(packet))
    expect(parser.waitingBytes).toBe(waiting)
  }
})

it('EventParser refuses an event over the limit: in one line, many lines, many packets, all line breaks', () => {
  const limit = { eventBytesMax: 100 }
  expect(parseAll([`data: ${'x'.repeat(94)}\n\n`], limit)).toHaveLength(1)
  for (const packets of [
    [`data: ${'x'.repeat(95)}\n\n`],
    ['data: 0123456789\n'.repeat(11)],
    ['data:\n'.repeat(200)],
    Array.from({ length: 200 }, () => 'x'),
  ])
    expect(() => parseAll(packets, limit)).toThrow(EventTooLargeError)
  expect(parseAll(['\r'.repeat(1_000_000)], limit)).toEqual([])
})

it('EventParser gives the events that came before an event over the limit', () => {
  const events: ServerEvent[] = []
  const packet = Buffer.from(`data: a\n\ndata: b\n\ndata: ${'x'.repeat(95)}`)
  expect(() => new EventParser({ eventBytesMax: 100 }).push(packet, events)).toThrow(
    EventTooLargeError,
  )
  expect(events).toEqual([data('a'), data('b')])
})
