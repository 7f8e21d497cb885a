import { describe, expect, it } from 'vitest'
import {
  EventParser,
  EventTooLargeError,
  type ServerEvent,
} from '#attestation/dialects/chat/event-parser.ts'

/** Gives the data of all events of the packets, the end included. */
function parseAll(
  packets: readonly (string | Uint8Array)[],
  eventBytesMax?: number,
): readonly string[] {
  const parser = new EventParser({
    errorLines: true,
    ...(eventBytesMax === undefined ? {} : { eventBytesMax }),
  })
  const events = packets.flatMap((packet) => parser.push(Buffer.from(packet)))
  return [...events, ...parser.end()].map(({ data }) => data)
}

describe('EventParser', () => {
  it('EventParser gives one text for each blank line, several in one packet', () => {
    expect(parseAll(['data: a\n\ndata: b\n\n'])).toEqual(['a', 'b'])
  })

  it.each([
    ['LF', '\n'],
    ['CRLF', '\r\n'],
    ['CR', '\r'],
  ])('EventParser takes %s as a line break', (_, lineBreak) => {
    const text = ['event: x', 'data: one', 'data: two', '', 'data: three', '', ''].join(lineBreak)
    expect(parseAll([text])).toEqual(['one\ntwo', 'three'])
  })

  it('EventParser gives the same wherever the bytes are split, in any two places', () => {
    const text = Buffer.from(
      '\uFEFF: hi\r\ndata: {"a":"é😀\u0000"}\r\n\r\nid: 1\rdata: x\rdata: y\r\rdata:\n\ndata: [DONE]',
    )
    const whole = parseAll([text])
    expect(whole).toEqual(['{"a":"é😀\u0000"}', 'x\ny', '', '[DONE]'])
    for (let first = 0; first <= text.length; first++)
      for (let second = first; second <= text.length; second++)
        expect(
          parseAll([text.subarray(0, first), text.subarray(first, second), text.subarray(second)]),
        ).toEqual(whole)
    expect(parseAll([...text].map((byte) => Uint8Array.of(byte)))).toEqual(whole)
  })

  it('EventParser takes a CR and an LF in two packets as one line break, an empty packet between them too', () => {
    expect(parseAll(['data: a\r', '', '\ndata: b\r', '\n\r', '\n'])).toEqual(['a\nb'])
  })

  it('EventParser skips comments and other fields, and takes the line in which llama.cpp reports an error', () => {
    expect(parseAll([': ping\n\nretry: 1\ndatum: 2\n\nerror: {"message":"m"}\n\n'])).toEqual([
      '{"message":"m"}',
    ])
  })

  it('EventParser takes the error line of llama.cpp also when it comes byte by byte', () => {
    const bytes = [...Buffer.from('error: {"message":"m"}\n\n')].map((byte) => Uint8Array.of(byte))
    expect(parseAll(bytes)).toEqual(['{"message":"m"}'])
  })

  it('EventParser gives the name of an event, and skips the field error where it is not asked for', () => {
    const parser = new EventParser()
    const bytes = Buffer.from('event: x\ndata: a\n\ndata: b\n\nerror: c\n\n')
    expect([...parser.push(bytes), ...parser.end()]).toEqual([
      { event: 'x', data: 'a' },
      { event: '', data: 'b' },
    ])
  })

  it('EventParser gives the event that no blank line and no line break ends', () => {
    expect(parseAll(['data: a\n'])).toEqual(['a'])
    expect(parseAll(['data: a'])).toEqual(['a'])
  })

  it('EventParser refuses an event over the limit: in one line, many lines, many packets, all line breaks', () => {
    expect(parseAll([`data: ${'x'.repeat(94)}\n\n`], 100)).toHaveLength(1)
    expect(() => parseAll([`data: ${'x'.repeat(95)}\n\n`], 100)).toThrow(EventTooLargeError)
    expect(() => parseAll(['data: 0123456789\n'.repeat(11)], 100)).toThrow(EventTooLargeError)
    expect(() => parseAll(['data:\n'.repeat(200)], 100)).toThrow(EventTooLargeError)
    expect(() =>
      parseAll(
        Array.from({ length: 200 }, () => 'x'),
        100,
      ),
    ).toThrow(EventTooLargeError)
    expect(parseAll(['\r'.repeat(1_000_000)], 100)).toEqual([])
  })

  it('EventParser gives the events that came before an event over the limit', () => {
    const events: ServerEvent[] = []
    const packet = Buffer.from(`data: a\n\ndata: b\n\ndata: ${'x'.repeat(95)}`)
    expect(() => new EventParser({ eventBytesMax: 100 }).push(packet, events)).toThrow(
      EventTooLargeError,
    )
    expect(events.map(({ data }) => data)).toEqual(['a', 'b'])
  })
})
