import { describe, expect, it, vi } from 'vitest'
import type { Affidavit } from '#client/index.ts'
import { type CallSession, createSession, type LostRequests } from '#client/session.ts'
import { openOwnedSession } from '#src/cli/proxy/owned-session.ts'
import type { SessionFile } from '#src/cli/proxy/session-file.ts'
import { ADDRESS, openMemoryClient } from '../../../client/memory-gateway.ts'

const KEYS = ['afd_one', 'afd_two'] as const

/** A session of a client before a gateway in memory. `keep` writes each call to the disk. */
function openSession(keep: () => Promise<void> = async () => undefined) {
  const clients: ReturnType<typeof openMemoryClient>[] = []
  const keys: (string | null)[] = []
  const owners: string[] = []
  const lost: LostRequests[] = []
  const sessions: CallSession[] = []
  const file: SessionFile = {
    start: undefined,
    owner: null,
    keep,
    keepOwner: async (_, owner) => void owners.push(owner),
    keepLost: async (_, one) => void lost.push(one),
    isFull: () => false,
    complete: (apiKey) => void keys.push(apiKey),
    close: () => Promise.reject(new Error('expected no close')),
  }
  const outside = openMemoryClient({}, {})
  const affidavit: Pick<Affidavit, 'fetch' | 'startSession'> = {
    fetch: outside.fetch,
    startSession: (options = {}) => {
      const created = createSession(options, {
        open: (turns, onProof) => {
          const client = openMemoryClient({}, { session: turns, keep: onProof })
          clients.push(client)
          return client.fetch
        },
        anchored: () => Promise.reject(new Error('expected no call of anchored')),
      })
      sessions.push(created)
      return created
    },
  }
  const session = openOwnedSession(affidavit, file)
  const [client = outside] = clients
  /** Makes a call, and leaves it when `signal` aborts. True if it was outside of the session. */
  async function ask(
    apiKey: string,
    { stream = false, signal = new AbortController().signal, content = 'Pay?' } = {},
  ) {
    const admission = await session.admit(apiKey, signal)
    const messages = [{ role: 'user', content }]
    const body = JSON.stringify({ model: 'demo/echo', stream, messages })
    try {
      const answer = await admission.fetch(client.url, { method: 'POST', body, signal })
      await answer.text()
      if (answer.ok) session.accept(apiKey)
      return { isOutside: admission.isOutside, status: answer.status }
    } finally {
      admission.leave()
    }
  }
  const unanswered = () => sessions.flatMap((one) => one.unanswered)
  return { session, client, keys, owners, lost, unanswered, ask }
}

describe('the owner of a session', () => {
  it('the first checked call decides among calls that begin at once, and the others wait', async () => {
    const { ask, keys, owners, client } = openSession()
    const calls = [KEYS[0], KEYS[1], KEYS[0], KEYS[1]].map((key) => ask(key))
    const outside = (await Promise.all(calls)).map(({ isOutside }) => isOutside)
    expect(outside).toEqual([false, true, false, true])
    expect(client.bodies).toHaveLength(2)
    expect(owners).toHaveLength(1)
    expect(keys).toEqual([KEYS[0], KEYS[0]])
  })

  it('a key whose call the gateway refuses becomes no owner, and fetches no evidence', async () => {
    const { ask, keys, owners, client, session } = openSession()
    client.attack = { respond: () => Response.json({ error: { message: 'no' } }, { status: 401 }) }
    expect(await ask(KEYS[1])).toEqual({ isOutside: false, status: 401 })
    session.recognize(KEYS[1])
    expect([owners, keys]).toEqual([[], []])
    client.attack = {}
    expect(await ask(KEYS[0])).toEqual({ isOutside: false, status: 200 })
    session.recognize(KEYS[1])
    expect(await ask(KEYS[1])).toMatchObject({ isOutside: true })
    expect(keys).toEqual([KEYS[0]])
  })

  it('the session states the lost calls of its owner, and none of the keys that came before', async () => {
    const { ask, client, lost, unanswered } = openSession()
    client.attack = { respond: () => Response.json({ error: { message: 'no' } }, { status: 401 }) }
    for (const content of ['False 1?', 'False 2?']) await ask(KEYS[1], { content })
    await ask(KEYS[0], { content: 'Lost?' })
    const [ofFalse1, ofFalse2, ofOwner] = lost.map(({ call }) => call)
    client.attack = {}
    await ask(KEYS[0])
    expect(unanswered()).toEqual([{ n: 0, notary: ADDRESS, times: 1 }])
    const kept = new Map(lost.map((one) => [one.call, one.unanswered.length]))
    expect([...kept]).toEqual([
      [ofFalse1, 0],
      [ofFalse2, 0],
      [ofOwner, 1],
    ])
  })

  it('a caller who leaves while his call is being kept is still its owner', async () => {
    const begun = Promise.withResolvers<void>()
    const kept = Promise.withResolvers<void>()
    const { ask, owners, client } = openSession(() => {
      begun.resolve()
      return kept.promise
    })
    const leaving = new AbortController()
    const first = ask(KEYS[0], { stream: true, signal: leaving.signal }).catch(() => 'left')
    await begun.promise
    leaving.abort(new Error('the caller left'))
    const second = ask(KEYS[1])
    kept.resolve()
    await first
    expect(await second).toMatchObject({ isOutside: true })
    expect(await ask(KEYS[0])).toMatchObject({ isOutside: false })
    expect(client.bodies).toHaveLength(2)
    expect(owners).toHaveLength(1)
  })

  it('a call whose proof cannot be kept gives the session no owner', async () => {
    const keep = vi.fn(async () => undefined).mockRejectedValueOnce(new Error('no space left'))
    const { ask } = openSession(keep)
    await expect(ask(KEYS[0])).rejects.toMatchObject({ code: 'not_kept' })
    expect(await ask(KEYS[1])).toMatchObject({ isOutside: false })
    expect(await ask(KEYS[0])).toMatchObject({ isOutside: true })
  })
})
