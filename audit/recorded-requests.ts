import { z } from 'zod'

/** A full index takes about 40 MB of memory, and 8 MB of the state file. */
const REQUESTS_MAX = 262_144

/** The part of a request hash that is kept. It takes 2^64 trials to find two requests with one. */
const KEY_BYTES = 16
const ENTRY_BYTES = KEY_BYTES + 8

/** The place of a record: a leaf of the log of `notary`. */
export type RecordPlace = { readonly notary: string; readonly index: number }

/** The first record of each of the latest requests, over all logs and runs. */
export type RecordedRequests = ReturnType<typeof openRecordedRequests>

/** Null: the state file has logs, and no requests. */
export function openRecordedRequests(
  written: WrittenRequests | null = { isCut: false, logs: {} },
  requestsMax = REQUESTS_MAX,
) {
  const places = new Map<string, RecordPlace>()
  let isCut = written?.isCut ?? true
  for (const [notary, entries] of Object.entries(written?.logs ?? {}))
    for (const [key, index] of readEntries(entries)) places.set(key, { notary, index })
  return {
    /** True if the first records of some requests are not known. */
    isCut: () => isCut,
    /** `hash`: 64 hex digits. Returns the first record of this request, if it is in another log. */
    record(hash: string, place: RecordPlace): RecordPlace | null {
      // One byte for each character, because each key stays in memory.
      const key = Buffer.from(hash.slice(0, 2 * KEY_BYTES), 'hex').toString('latin1')
      const first = places.get(key)
      if (first !== undefined) return first.notary === place.notary ? null : first
      places.set(key, place)
      for (const oldest of places.keys()) {
        if (places.size <= requestsMax) break
        places.delete(oldest)
        isCut = true
      }
      return null
    },
    write(): WrittenRequests {
      const logs = new Map<string, (readonly [key: string, index: number])[]>()
      for (const [key, { notary, index }] of places) {
        const entries = logs.get(notary) ?? []
        entries.push([key, index])
        logs.set(notary, entries)
      }
      const written = [...logs].map(([notary, entries]) => [notary, writeEntries(entries)])
      return { isCut, logs: Object.fromEntries(written) }
    },
  }
}

function* readEntries(bytes: Buffer): Generator<readonly [key: string, index: number]> {
  for (let at = 0; at < bytes.length; at += ENTRY_BYTES) {
    const end = at + KEY_BYTES
    yield [bytes.toString('latin1', at, end), bytes.readDoubleBE(end)]
  }
}

function writeEntries(entries: readonly (readonly [key: string, index: number])[]): Buffer {
  const bytes = Buffer.alloc(entries.length * ENTRY_BYTES)
  for (const [at, [key, index]] of entries.entries()) {
    bytes.write(key, at * ENTRY_BYTES, 'latin1')
    bytes.writeDoubleBE(index, at * ENTRY_BYTES + KEY_BYTES)
  }
  return bytes
}

/** An entry has 24 bytes, so 32 digits of base64 without padding. */
const Entries = z
  .codec(
    z
      .string()
      .regex(/^[A-Za-z0-9+/]*$/, 'expected requests in base64')
      .refine(({ length }) => length % 32 === 0, 'expected whole requests'),
    z.custom<Buffer>(),
    {
      decode: (text) => Buffer.from(text, 'base64'),
      encode: (bytes) => bytes.toString('base64'),
    },
  )
  .refine(
    (bytes) =>
      [...readEntries(bytes)].every(([, index]) => Number.isSafeInteger(index) && index >= 0),
    'expected requests with the indexes of their records',
  )

/** By notary: in the file base64, in memory bytes. */
export const WrittenRequestsForm = z.strictObject({
  isCut: z.boolean(),
  logs: z.record(z.string().regex(/^0x[0-9a-f]{40}$/), Entries),
})

export type WrittenRequests = z.infer<typeof WrittenRequestsForm>
