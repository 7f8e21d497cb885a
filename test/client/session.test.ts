import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import {
  type CallSession,
  createSession,
  type LostRequests,
  type SessionStart,
} from '#client/session.ts'
import { ADDRESS, type MemoryClient, openMemoryClient } from './memory-gateway.ts'

/** A session with a client of its own. `keep` keeps each proof. */
function openSession(
  keep: () => void | Promise<void> = () => undefined,
  start?: SessionStart,
  onLost: (lost: LostRequests) => void = () => undefined,
) {
  let client: MemoryClient | undefined
  const session = createSession(
    { onProof: keep, onLost, ...(start === undefined ? {} : { start }) },
    {
      open: (turns, onProof) => {
        client = openMemoryClient({}, { encrypt: true, session: turns, keep: onProof })
        return client.fetch
      },
      anchored: () => Promise.reject(new Error('expected no call of anchored')),
    },
  )
  if (client === undefined) throw new Error('expected the session to open a client')
  return { session, client }
}

const ask = (session: CallSession, { url }: MemoryClient, signal: AbortSignal | null = null) =>
  session.fetch(url, {
    method: 'POST',
    signal,
    body: JSON.stringify({
      model: 'demo/echo',
      stream: true,
      messages: [{ role: 'user', content: 'Pay?' }],
    }),
  })

/** The places in the session of the calls that the enclave opened. */
const placesOf = ({ opened }: MemoryClient) =>
  opened.map(({ body }) => JSON.parse(body).affidavit.session)

it.each([
  ['is whole', (answer: Response) => answer.text()],
  ['is left', (answer: Response) => answer.body?.cancel()],
])('an answer that %s leaves no listener on the signal of its caller', async (_, end) => {
  const { session, client } = openSession()
  const { signal } = new AbortController()
  const answer = await ask(session, client, signal)
  // Each Request also has a listener, which does not keep the Request in memory.
  const listeners = getEventListeners(signal, 'abort').length
  await end(answer)
  expect(getEventListeners(signal, 'abort').length).toBeLessThan(listeners)
})

it('a session has no more calls than a verifier reads', async () => {
  const start = { id: 'ab'.repeat(16), n: 9_999, previous: 'cd'.repeat(32) }
  const { session, client } = openSession(undefined, start)
  await (await ask(session, client)).text()
  await expect(ask(session, client)).rejects.toMatchObject({
    code: 'invalid_request',
    message: 'expected at most 10000 calls in a session',
  })
  expect(placesOf(client)).toMatchObject([{ n: 9_999 }])
})

it('a session states the requests of a lost call as they change, until its answer comes', async () => {
  const earlier = { n: 0, notary: `0x${'ab'.repeat(20)}`, times: 2 }
  const start = { id: 'ab'.repeat(16), n: 3, previous: 'cd'.repeat(32), unanswered: [earlier] }
  const stated: LostRequests[] = []
  const { session, client } = openSession(undefined, start, (lost) => void stated.push(lost))
  client.attack = { intercept: () => new Response('{}', { status: 500 }) }
  for (let call = 0; call < 2; call++) await (await ask(session, client)).text()
  const lost = (times: number) => [{ n: 3, notary: ADDRESS, times }]
  expect(stated.map(({ unanswered }) => unanswered)).toEqual([lost(1), lost(2)])
  expect(session.unanswered).toEqual([earlier, ...lost(2)])
  client.attack = { receipt: { attempt: 1 } }
  await (await ask(session, client)).text()
  expect(stated.map(({ unanswered }) => unanswered)).toEqual([lost(1), lost(2), []])
  expect(new Set(stated.map(({ call }) => call)).size).toBe(1)
  expect(session.unanswered).toEqual([earlier])
})

describe('a caller who leaves a stream of a session', () => {
  it('a call whose proof is being kept when its caller leaves still has its place', async () => {
    let isKept: () => void = () => undefined
    let begin: () => void = () => undefined
    const isKeeping = new Promise<void>((resolve) => {
      begin = resolve
    })
    const { session, client } = openSession(() => {
      begin()
      return new Promise((resolve) => {
        isKept = resolve
      })
    })
    const leaving = new AbortController()
    const first = await ask(session, client, leaving.signal)
    const left = first.text().catch(() => 'left')
    await isKeeping
    leaving.abort(new Error('the caller left'))
    const second = ask(session, client)
    await new Promise((resolve) => setImmediate(resolve))
    expect(client.opened).toHaveLength(1)
    isKept()
    await left
    void (await second).text()
    expect(placesOf(client)).toEqual([
      { id: session.id, n: 0, previous: null },
      { id: session.id, n: 1, previous: expect.stringMatching(/^[0-9a-f]{64}$/) },
    ])
    isKept()
  })

  it.each(['aborts', 'cancels the answer'])(
    'a call is not kept when its caller %s before the end, and the next call has its place',
    async (how) => {
      let kept = 0
      const { session, client } = openSession(() => {
        kept += 1
      })
      const leaving = new AbortController()
      const reader = (await ask(session, client, leaving.signal)).body?.getReader()
      await reader?.read()
      const rest = reader?.read().catch(() => 'left')
      if (how === 'aborts') leaving.abort(new Error('the caller left'))
      else await reader?.cancel()
      await (await ask(session, client)).text()
      await rest
      expect(placesOf(client)).toEqual([
        { id: session.id, n: 0, previous: null },
        { id: session.id, n: 0, previous: null },
      ])
      expect(kept).toBe(1)
    },
  )

  it('a caller who leaves before the answer is opened does not block the next call', async () => {
    const { session, client } = openSession()
    const leaving = new AbortController()
    client.attack = {
      intercept: () => {
        queueMicrotask(() => leaving.abort(new Error('the caller left')))
        return null
      },
    }
    await ask(session, client, leaving.signal).catch(() => 'left')
    client.attack = {}
    expect(await (await ask(session, client)).text()).toContain('[DONE]')
  })
})
