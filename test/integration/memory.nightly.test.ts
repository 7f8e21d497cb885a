import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { createEncryptedFetch, type EncryptedFetch } from '../support/encrypted-fetch.ts'
import { createTestDatabase } from '../support/test-database.ts'

const MIB = 1024 * 1024
const LARGE_CALLS = 32
const LARGE_BYTES = 9 * MIB
/** A container of 512 MiB, in which Node has a heap of this size. */
const MEMORY_MIB = 512
const HEAP_MIB = 256

let service: Affidavit
beforeAll(async () => {
  service = await startAffidavit({
    logLevel: 'warn',
    variables: {
      DATABASE_URL: await createTestDatabase(),
      NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB}`,
      // The value that the image and the unit set.
      MALLOC_MMAP_THRESHOLD_: '1048576',
      MEMORY_ADMITTED_BYTES_MAX: String((MEMORY_MIB / 4) * MIB),
    },
  })
})
afterAll(() => service.stop())

const chat = (bytes: number) => ({
  body: JSON.stringify({
    model: 'demo/lorem',
    messages: [{ role: 'user', content: 'word '.repeat(bytes / 5) }],
  }),
  headers: { 'content-type': 'application/json' },
})

/** A body whose values take many times the memory of its text. */
const sparse = (bytes: number) => ({
  ...chat(0),
  body: `{"model":"demo/lorem","messages":[{"role":"user","content":"Hi"}],"x":[${'{},'.repeat(bytes / 3)}{}]}`,
})

function imageForm(bytes: number) {
  const form = new FormData()
  form.set('model', 'demo/image')
  form.set('prompt', 'a hill')
  form.set('image', new Blob([new Uint8Array(bytes)], { type: 'image/png' }), 'a.png')
  return { body: form, headers: {} }
}

async function post(
  path: string,
  { body, headers }: { readonly body: string | FormData; readonly headers: object },
  by: EncryptedFetch = fetch,
) {
  const reply = await by(service.url + path, {
    method: 'POST',
    headers: { ...headers, authorization: `Bearer ${service.apiKey}` },
    body,
  })
  const text = await reply.text()
  const code = reply.ok ? null : (JSON.parse(text).error?.code ?? 'invalid')
  return { status: reply.status, code, retryAfter: reply.headers.get('retry-after') }
}

/** The peak memory of the gateway's process, MiB. */
async function readPeak(): Promise<number> {
  const status = await readFile(`/proc/${service.pid}/status`, 'utf8')
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1024
}

const VERIFIED = '/v1/verified/chat/completions'
const tiny = () => post(VERIFIED, sparse(MIB))

/** Calls that do not fit into 512 MiB are refused. Only the gateway's process is measured. */
it.each<[string, () => ReturnType<typeof post>, () => ReturnType<typeof post>]>([
  [
    'verified calls of 9 MiB',
    () => post(VERIFIED, chat(LARGE_BYTES)),
    () => post(VERIFIED, chat(100)),
  ],
  [
    'plain calls of 9 MiB',
    () => post('/v1/chat/completions', chat(LARGE_BYTES)),
    () => post('/v1/chat/completions', chat(100)),
  ],
  ['calls of 1 MiB of tiny values', tiny, () => post(VERIFIED, chat(100))],
  [
    'forms with an image of 9 MiB',
    () => post('/v1/images/edits', imageForm(LARGE_BYTES)),
    () => post('/v1/chat/completions', chat(100)),
  ],
])(
  '%s, 32 at once, are refused where they do not fit, and small calls are not',
  async (_, large, small) => {
    const larges = Array.from({ length: LARGE_CALLS }, large)
    const smalls: Awaited<ReturnType<typeof post>>[] = []
    const all = Promise.all(larges)
    let isOver = false
    all.finally(() => {
      isOver = true
    })
    while (!isOver) smalls.push(await small())
    const outcomes = await all
    const peak = await readPeak()
    for (const { code, retryAfter, status } of outcomes)
      if (code === 'overloaded') expect([status, Number(retryAfter)]).toEqual([503, 1])
    // Calls of tiny values may each be decided before the next one arrives.
    if (large !== tiny) expect(outcomes.some(({ code }) => code === 'overloaded')).toBe(true)
    expect(outcomes.some(({ code }) => code !== 'overloaded')).toBe(true)
    expect(smalls.map(({ status }) => status)).toEqual(smalls.map(() => 200))
    expect(peak).toBeLessThan(MEMORY_MIB)
    expect((await small()).status).toBe(200)
  },
)

it('encrypted calls of 9 MiB, 32 at once, pass through without being held', async () => {
  const by = createEncryptedFetch(() => service.url)
  const large = () => post(VERIFIED, chat(LARGE_BYTES), by)
  const outcomes = await Promise.all(Array.from({ length: LARGE_CALLS }, large))
  expect(outcomes.map(({ status }) => status)).toEqual(outcomes.map(() => 200))
  expect(await readPeak()).toBeLessThan(MEMORY_MIB)
}, 300_000)
