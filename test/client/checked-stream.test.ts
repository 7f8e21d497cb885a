import { describe, expect, it } from 'vitest'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { isJsonObject, type JsonObject } from '#attestation/json/value.ts'
import { createChunkReader, createNamedEventReader } from '#client/answer-readers.ts'
import { checkedStream } from '#client/checked-stream.ts'
import { AffidavitError } from '#client/errors.ts'
import { chunkOf, makeStream } from '../attestation/kept-streams.ts'

const { chunks } = makeStream({ usageAsked: false })
const eventOf = (chunk: unknown) =>
  `data: ${typeof chunk === 'string' ? chunk : JSON.stringify(chunk)}\n\n`
const [first = {}] = chunks
const TEXT = [...chunks, '[DONE]'].map(eventOf).join('')
const LATER = eventOf({ error: { message: 'later' } })
const BEFORE_PROOF = chunks.slice(0, -1).map(eventOf).join('')

type Options = Partial<Parameters<typeof checkedStream>[1]> & { readonly sizes?: number }

/** What of a stream is given, and how it ends; the chunks that were checked. */
async function run(text: string | Uint8Array, { sizes = 1_000_000, ...options }: Options = {}) {
  const bytes = typeof text === 'string' ? new TextEncoder().encode(text) : text
  const seen: { chunks: readonly JsonObject[] | null; isCancelled: boolean } = {
    chunks: null,
    isCancelled: false,
  }
  let at = 0
  const source = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (at >= bytes.length) return controller.close()
      controller.enqueue(bytes.slice(at, at + sizes))
      at += sizes
    },
    cancel() {
      seen.isCancelled = true
    },
  })
  const stream = checkedStream(source, {
    answer: createChunkReader(),
    check: async (kept) => {
      seen.chunks = kept.kind === 'stream' ? kept.chunks.filter(isJsonObject) : null
    },
    hold: false,
    bytesMax: 1_000_000,
    ...options,
  })
  let given = ''
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  try {
    for await (const part of stream) given += decoder.decode(part, { stream: true })
    return { given, end: 'end', ...seen }
  } catch (fault) {
    return { given, end: fault instanceof AffidavitError ? fault.code : String(fault), ...seen }
  }
}

describe('a checked stream', () => {
  it('a checked stream is given as it came, with its chunks checked, however it is cut into parts', async () => {
    for (const sizes of [1, 7, 80]) {
      const { given, end, chunks: checked } = await run(TEXT, { sizes })
      expect({ given, end }).toEqual({ given: TEXT, end: 'end' })
      expect(checked).toEqual(chunks)
    }
  })

  it('the chunk with the proof and [DONE] are not given before both were checked', async () => {
    const refuse = async () => {
      throw new AffidavitError('wrong_stream', 'refused')
    }
    expect(await run(TEXT, { check: refuse, sizes: 20 })).toMatchObject({
      given: BEFORE_PROOF,
      end: 'wrong_stream',
    })
  })

  it('a stream whose caller left ends with the error of its source, not as a cut stream', async () => {
    const left = new Error('left')
    const end = async (signal?: AbortSignal) => {
      const source = new ReadableStream<Uint8Array>({ pull: (given) => given.error(left) })
      const answer = createChunkReader()
      const options = { answer, check: async () => undefined, hold: false, bytesMax: 1e6 }
      const stream = checkedStream(source, signal === undefined ? options : { ...options, signal })
      return await stream
        .getReader()
        .read()
        .catch((fault: unknown) => fault)
    }
    expect(await end(AbortSignal.abort())).toBe(left)
    expect(await end(new AbortController().signal)).toMatchObject({ code: 'cut_stream' })
  })

  it('a held stream leaves out comments, of which there may be any number', async () => {
    const text = `: ping\n\n${TEXT}`
    expect(await run(text, { hold: true })).toMatchObject({ given: TEXT, end: 'end' })
    expect(await run(text)).toMatchObject({ given: text, end: 'end' })
  })

  it('a held stream gives nothing before all was checked', async () => {
    const refuse = async () => {
      throw new AffidavitError('wrong_stream', 'refused')
    }
    expect(await run(TEXT, { hold: true, check: refuse })).toMatchObject({
      given: '',
      end: 'wrong_stream',
    })
    expect(await run(TEXT, { hold: true })).toMatchObject({ given: TEXT, end: 'end' })
  })

  it('a checked stream gives nothing that comes after [DONE] and hangs up', async () => {
    const more = eventOf(chunkOf({ content: 'and transfer it all' }))
    const { given, end, isCancelled } = await run(TEXT + more, { sizes: TEXT.length + 5 })
    expect({ given, end, isCancelled }).toEqual({ given: TEXT, end: 'end', isCancelled: true })
  })

  it('a stream that is cut at any place ends in an error', async () => {
    // Before, within and at the end of each event, and within the last one, [DONE].
    const starts = [...TEXT.matchAll(/data: /g)].map(({ index }) => index)
    const lengths = starts.flatMap((start) => [start - 1, start, start + 3, start + 9, start + 40])
    for (const length of lengths.filter((each) => each >= 0 && each < TEXT.length)) {
      const { given, end } = await run(TEXT.slice(0, length))
      expect(end).toBe('cut_stream')
      expect(TEXT.startsWith(given)).toBe(true)
      expect(given.length).toBeLessThanOrEqual(BEFORE_PROOF.length)
    }
  })

  it.each<[string, string | Uint8Array, string]>([
    ['carriage returns', TEXT.replaceAll('\n', '\r\n'), 'invalid_stream'],
    ['a byte order mark', `\ufeff${TEXT}`, 'invalid_stream'],
    ['an event with a name', `event: message\n${TEXT}`, 'invalid_stream'],
    ['bytes that are no UTF-8', Buffer.from('data:\xff\n\n', 'latin1'), 'invalid_stream'],
    ['data that is no JSON', `${eventOf('{')}${TEXT}`, 'invalid_stream'],
    ['two members of a name', `${eventOf('{"object":"a","object":"x"}')}${TEXT}`, 'invalid_stream'],
    ['a rounded number', `${eventOf('{"n":0.30000000000000000001}')}${TEXT}`, 'invalid_stream'],
    ['an error in the middle', `${eventOf(first)}event: error\n${LATER}`, 'error_in_answer'],
    ['an error as a chunk', `${eventOf(first)}${LATER}`, 'error_in_answer'],
    [
      'a chunk that readers take differently',
      `${eventOf(first)}${eventOf({ ...first, id: 'c2' })}${TEXT}`,
      'invalid_stream',
    ],
    ['a part of a proof too early', eventOf({ ...first, hash: 'aa' }), 'invalid_stream'],
    [
      'a chunk after the one with the proof',
      TEXT.replace('data: [DONE]', eventOf(first).trim()),
      'invalid_stream',
    ],
  ])('a checked stream refuses %s', async (_, text, code) => {
    for (const sizes of [1, 100_000]) {
      const { given, end } = await run(text, { sizes })
      expect(end).toBe(code)
      expect(given.includes('[DONE]')).toBe(false)
    }
  })

  it('an error whose message has a separator of lines is shown with its code and its message', () => {
    const error = { code: 'provider_error', message: 'bad\u2028news' }
    const shown = expect.objectContaining({
      code: 'error_in_answer',
      message: expect.stringMatching(/provider_error: bad\snews$/),
    })
    const text = `event: error\n${eventOf({ error })}`
    expect(() => createChunkReader().read(text)).toThrow(shown)
    expect(() => createNamedEventReader(EVENT_DIALECTS.messages).read(text)).toThrow(shown)
  })

  it.each(['responses', 'messages'] as const)(
    'an error that ends an encrypted stream of %s is shown, from older enclaves too',
    (name) => {
      const error = { type: 'api_error', code: 'provider_error', message: 'bad news' }
      const failed = { status: 'failed', error: { code: error.code, message: error.message } }
      const own = {
        responses: { type: 'response.failed', sequence_number: 4, response: failed },
        messages: { type: 'error', error },
      }[name]
      const older = { response: 'NOK', error: { ...error, status_code: 502 } }
      for (const text of [`event: ${own.type}\n${eventOf(own)}`, `event: error\n${eventOf(older)}`])
        expect(() => createNamedEventReader(EVENT_DIALECTS[name]).read(text)).toThrow(
          'provider_error: bad news',
        )
    },
  )

  it('a stream that is longer than its limit is refused, even within one event', async () => {
    const { length } = TEXT
    expect(await run(TEXT, { bytesMax: length })).toMatchObject({ end: 'end' })
    expect(await run(TEXT, { bytesMax: length - 1, sizes: 10 })).toMatchObject({
      end: 'answer_too_large',
    })
    const endless = `data: "${'x'.repeat(100_000)}`
    expect(await run(endless, { bytesMax: 50_000, sizes: 1000 })).toMatchObject({
      end: 'answer_too_large',
      isCancelled: true,
    })
  })
})
