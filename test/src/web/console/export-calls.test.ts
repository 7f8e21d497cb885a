import { afterEach, describe, expect, it, vi } from 'vitest'

// By names that the type checker does not follow: only the pages' own configuration has the types
// of a browser.
const room = (path: string) => new URL(`../../../../src/web/${path}`, import.meta.url).href
const { exportCalls } = await import(room('console/export-calls.ts'))
const { readCallAnchors, anchorOf } = await import(room('console/use-call-anchors.ts'))
const { OwnGatewayFault } = await import(room('kit/gateway.ts'))

afterEach(() => void vi.unstubAllGlobals())

/** The generator of secp256k1, whose address is that of the secret key 1. */
const PUBLIC_KEY =
  '0479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8'
const NOTARY = '0x7e5f4552091a69125d5dfcb7b8c2659029395bdf'

const callOf = (at: number) => ({
  hash: String(at).padStart(64, '0'),
  created_at: 1_790_000_000,
  dialect: 'chat',
  usage: { prompt_tokens: at, completion_tokens: 1, total_tokens: at + 1 },
  request: null,
  response: null,
  tx_hash: '0xold',
  public_key: PUBLIC_KEY,
  log: { size: at },
  receipt: {
    encrypted: false,
    dialect: 'chat',
    attempt: 1,
    version: 1,
    index: at,
    outcome: 'complete',
    model: { requested: at === 1 ? '=1+1' : 'm', returned: 'm' },
    provider: { name: 'demo', origin: 'http://demo' },
  },
})
type Call = ReturnType<typeof callOf>

/** A gateway whose history has `total` calls; `without` have no evidence. */
function openHistory(total: number, without: readonly number[] = []) {
  const asked: string[] = []
  const all = Array.from({ length: total }, (_, at) => callOf(at + 1))
  return {
    all,
    asked,
    session: {
      async ask(path: string) {
        asked.push(path)
        const query = new URLSearchParams(path.split('?')[1])
        const from = Number(query.get('cursor') ?? 0)
        const next = from + Number(query.get('limit'))
        return { completions: all.slice(from, next), cursor: next < total ? String(next) : null }
      },
      async askText(path: string) {
        const at = Number(path.split('/').at(-2))
        const options = { status: 404, code: 'not_found', requestId: null }
        if (without.includes(at)) throw new OwnGatewayFault('none', options)
        return `{"at":\r\n${at}}\n`
      },
    },
  }
}

async function run(
  history: ReturnType<typeof openHistory>,
  kind: 'records' | 'table' | 'evidence',
  { signal = new AbortController().signal, source = {} } = {},
) {
  const counts: number[] = []
  const exported = await exportCalls(history.session, {
    kind,
    source: { wanted: { kind: 'query', query: '&model=m' }, ...source },
    anchors: new Map(),
    signal,
    onCount: (count: number) => counts.push(count),
  })
  return { exported, counts }
}

describe('an export of calls', () => {
  it('an export has the calls of every page, in their order, and asks for each page once', async () => {
    const history = openHistory(230)
    const { exported, counts } = await run(history, 'records')
    expect(exported).toMatchObject({ count: 230, isCut: false, missing: 0 })
    const lines = exported.text.trimEnd().split('\n')
    expect(lines.map((line: string) => JSON.parse(line))).toEqual(history.all)
    expect(counts.at(-1)).toBe(230)
    const path = '/v1/verified/records?limit=100&model=m'
    expect(history.asked).toEqual([path, `${path}&cursor=100`, `${path}&cursor=200`])
  })

  it.each([
    ['records', 5_000, false],
    ['records', 5_001, true],
    ['evidence', 500, false],
    ['evidence', 501, true],
  ] as const)('an export of %s of %i calls is cut: %s', async (kind, total, isCut) => {
    const { exported } = await run(openHistory(total), kind)
    expect(exported).toMatchObject({ count: Math.min(total, isCut ? total - 1 : total), isCut })
  })

  it('an export of evidence has each bundle on a line, and counts the calls without one', async () => {
    const { exported, counts } = await run(openHistory(4, [1, 3]), 'evidence')
    expect(exported).toEqual({ text: '{"at": 2}\n{"at": 4}\n', count: 2, isCut: false, missing: 2 })
    expect(counts).toEqual([1, 2])
  })

  it('an export of evidence ends with the fault of the gateway', async () => {
    const history = openHistory(2)
    const fault = new OwnGatewayFault('busy', { status: 503, code: 'overloaded', requestId: 'r' })
    history.session.askText = async () => Promise.reject(fault)
    await expect(run(history, 'evidence')).rejects.toBe(fault)
  })

  it('an export that is stopped ends with the reason', async () => {
    const reason = new Error('stopped')
    await expect(
      run(openHistory(2), 'records', { signal: AbortSignal.abort(reason) }),
    ).rejects.toBe(reason)
  })

  it('an export of a loaded list asks for no page', async () => {
    const history = openHistory(3)
    const { exported } = await run(history, 'records', { source: { calls: [callOf(9)] } })
    expect([exported.count, history.asked]).toEqual([1, []])
  })

  it('an export as a table names the anchor of each call, and disarms its texts', async () => {
    serveHeads([1, 2])
    const { exported } = await run(openHistory(2), 'table')
    const [head, first, second] = exported.text.split('\r\n')
    expect(head).toMatch(/^time,hash,model,/)
    expect(first).toContain(`,"'=1+1",m,demo,http://demo,complete,false,chat,1,1,${NOTARY},1,`)
    expect(first).toMatch(/,confirmed,0xtx1,101$/)
    expect(second).toMatch(/,2,confirmed,0xtx2,102$/)
  })
})

/** The public log has heads of these sizes; a request gives those from its cursor on. */
function serveHeads(sizes: readonly number[], state = 'confirmed') {
  const asked: string[] = []
  vi.stubGlobal('fetch', async (path: string) => {
    asked.push(path)
    const cursor = Number(/cursor=(\d+)/.exec(path)?.[1])
    const heads = sizes
      .filter((size) => size > cursor)
      .slice(0, 100)
      .map((size) => ({
        size,
        anchor: { state, tx_hash: `0xtx${size}`, block_number: 100 + size },
      }))
    return Response.json({ heads })
  })
  return asked
}

describe('the anchors of calls', () => {
  const read = (calls: readonly Call[], known = new Map()) =>
    readCallAnchors(calls, { known, signal: new AbortController().signal })

  it('the anchors of calls are read with one request for heads that are near, and more for others', async () => {
    const asked = serveHeads(Array.from({ length: 250 }, (_, at) => at + 1))
    const calls = [callOf(240), callOf(3), callOf(5)]
    const anchors = await read(calls)
    expect(calls.map((call) => anchorOf(anchors, call)?.block)).toEqual([340, 103, 105])
    expect(asked).toEqual([
      `/v1/log/${NOTARY}/heads?cursor=2&limit=100`,
      `/v1/log/${NOTARY}/heads?cursor=239&limit=100`,
    ])
  })

  it('an anchor is read again until it is confirmed, and then no more', async () => {
    serveHeads([1], 'pending')
    const pending = await read([callOf(1)])
    expect(anchorOf(pending, callOf(1))?.state).toBe('pending')
    const asked = serveHeads([1])
    const confirmed = await read([callOf(1)], pending)
    expect(anchorOf(confirmed, callOf(1))?.state).toBe('confirmed')
    expect(await read([callOf(1)], confirmed)).toEqual(confirmed)
    expect(asked).toHaveLength(1)
  })

  it('a call whose public key is none has no anchor, and the others have theirs', async () => {
    serveHeads([2])
    const odd = { ...callOf(1), public_key: '00' }
    const anchors = await read([odd, callOf(2)])
    expect([anchorOf(anchors, odd), anchorOf(anchors, callOf(2))?.block]).toEqual([undefined, 102])
  })
})
