import type { ServerResponse } from 'node:http'
import { afterEach, describe, expect, it } from 'vitest'
import { createRpc, type Rpc, RpcError } from '#client/rpc.ts'
import {
  type EndpointRequest,
  type ScriptedEndpoint,
  startScriptedEndpoint,
} from '../support/scripted-endpoint.ts'

type Incoming = Pick<EndpointRequest, 'url' | 'headers'>
type Handler = (calls: readonly Call[], outgoing: ServerResponse, incoming: Incoming) => void
type Call = { readonly id: number; readonly method: string; readonly params: readonly unknown[] }

let server: ScriptedEndpoint | null = null
let rpc: Rpc | null = null

afterEach(async () => {
  await rpc?.close()
  await server?.stop()
  server = null
})

/** A client of a server that answers with `handler`. */
async function serve(
  handler: Handler,
  options: {
    readonly login?: string
    readonly path?: string
    readonly timeoutMs?: number
    readonly bytesMax?: number
  } = {},
): Promise<Rpc> {
  server = await startScriptedEndpoint((incoming, outgoing) => {
    const calls = [incoming.json].flat() as readonly Call[]
    handler(calls, outgoing, incoming)
  })
  const { host } = new URL(server.origin)
  rpc = createRpc({
    url: `http://${options.login ?? ''}${host}${options.path ?? ''}`,
    timeoutMs: options.timeoutMs ?? 2_000,
    ...(options.bytesMax === undefined ? {} : { answerBytesMax: options.bytesMax }),
  })
  return rpc
}

function json(outgoing: ServerResponse, value: unknown, status = 200): void {
  outgoing.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(RpcError)
  return error instanceof RpcError ? error.code : 'none'
}

describe('call', () => {
  it('an RPC call throws refused with the endpoint’s words, cut short', async () => {
    const error = { code: -32000, message: `no ${'x'.repeat(10_000)}` }
    const client = await serve((_, outgoing) => json(outgoing, { jsonrpc: '2.0', id: 0, error }))
    const thrown = await client.call('eth_test', []).catch((reason: RpcError) => reason)
    expect(thrown).toMatchObject({
      code: 'refused',
      message: expect.stringMatching(/^eth_test: no x{197}$/),
    })
  })

  it('an RPC call sends path, query and credentials of the URL, and names none of them in an error', async () => {
    const client = await serve(
      (_, outgoing, { url, headers }) => json(outgoing, { result: [url, headers.authorization] }),
      { login: 'user:p%40ss@', path: '/v3/secret-key?a=1' },
    )
    const basic = `Basic ${Buffer.from('user:p@ss').toString('base64')}`
    expect(await client.call('eth_test', [])).toEqual(['/v3/secret-key?a=1', basic])
    await server?.stop()
    const error = await client.call('eth_test', []).catch((reason: RpcError) => reason)
    expect(error).toMatchObject({ code: 'unreachable' })
    expect(String(error)).not.toMatch(/secret|user|127\.0\.0\.1/)
  })
})

describe('batch', () => {
  const calls = Array.from({ length: 5 }, (_, at) => ({ method: `m${at}`, params: [] }))

  it('an RPC batch gives replies in the order of the calls, however the endpoint orders them', async () => {
    const client = await serve((asked, outgoing) =>
      json(outgoing, asked.map(({ id, method }) => ({ id, result: method })).toReversed()),
    )
    const replies = await client.batch(calls)
    expect(replies).toEqual(calls.map(({ method }) => ({ kind: 'result', value: method })))
  })

  it('an RPC batch sends at most a hundred calls at a time', async () => {
    const sizes: number[] = []
    const client = await serve((asked, outgoing) => {
      sizes.push(asked.length)
      json(
        outgoing,
        asked.map(({ id, method }) => ({ id, result: method })),
      )
    })
    const many = Array.from({ length: 250 }, (_, at) => ({ method: `m${at}`, params: [] }))
    const replies = await client.batch(many)
    expect(sizes).toEqual([100, 100, 50])
    expect(replies.map((reply) => reply.kind === 'result' && reply.value)).toEqual(
      many.map((call) => call.method),
    )
  })

  it('an RPC batch gives errors of single calls as replies', async () => {
    const client = await serve((asked, outgoing) =>
      json(
        outgoing,
        asked.map(({ id }) =>
          id === 2 ? { id, error: { code: -32000, message: 'no' } } : { id, result: id },
        ),
      ),
    )
    const replies = await client.batch(calls)
    expect(replies[2]).toEqual({ kind: 'error', code: -32000, message: 'no' })
    expect(replies[3]).toEqual({ kind: 'result', value: 3 })
  })

  it.each<[string, unknown]>([
    ['a reply is missing', [{ id: 0, result: 1 }]],
    ['replies have ids of other types', calls.map((_, id) => ({ id: String(id), result: 1 }))],
    ['a reply has neither result nor error', calls.map((_, id) => ({ id }))],
    ['the batch is refused as a whole', { error: { code: -32600, message: 'too many calls' } }],
  ])('an RPC batch throws bad_answer when %s', async (_, answer) => {
    const client = await serve((_calls, outgoing) => json(outgoing, answer))
    expect(await codeOf(client.batch(calls))).toBe('bad_answer')
  })
})

describe('an endpoint that misbehaves', () => {
  const error = { code: -32614, message: 'eth_getLogs is limited to a 10,000 range' }

  it.each([400, 413])(
    'an RPC call throws refused for a JSON-RPC error with status %i',
    async (status) => {
      const client = await serve((_, outgoing) => json(outgoing, { id: 0, error }, status))
      const thrown = await client.call('eth_getLogs', []).catch((reason: RpcError) => reason)
      expect(thrown).toMatchObject({
        code: 'refused',
        message: `eth_getLogs: ${error.message}`,
      })
    },
  )

  it.each<[number, unknown]>([
    [429, { id: 0, error }],
    [301, {}],
    [503, { id: 0, error }],
    [400, { id: 0, result: '0x1' }],
    [400, { error: 'no such project' }],
  ])('an RPC call throws bad_status for status %i with %j', async (status, answer) => {
    const client = await serve((_, outgoing) => json(outgoing, answer, status))
    expect(await codeOf(client.call('eth_test', []))).toBe('bad_status')
  })

  it('an RPC call throws timeout when the answer does not end in time', async () => {
    const client = await serve(
      (_, outgoing) => {
        outgoing.writeHead(200).write('{"result":')
      },
      { timeoutMs: 100 },
    )
    expect(await codeOf(client.call('eth_test', []))).toBe('timeout')
  })

  it('an RPC call stops reading an answer that is too large', async () => {
    let sent = 0
    const client = await serve(
      (_, outgoing) => {
        outgoing.writeHead(200)
        const chunk = Buffer.alloc(64 * 1024, 0x20)
        const more = () => {
          while (!outgoing.destroyed && sent < 256 * 1024 * 1024) {
            sent += chunk.length
            if (!outgoing.write(chunk)) {
              outgoing.once('drain', more)
              return
            }
          }
        }
        more()
      },
      { bytesMax: 1024 * 1024 },
    )
    expect(await codeOf(client.call('eth_test', []))).toBe('answer_too_large')
    expect(sent).toBeLessThan(32 * 1024 * 1024)
  })

  it('an RPC call throws unreachable when no server listens, or the connection breaks', async () => {
    const client = await serve((_, outgoing) => outgoing.destroy())
    expect(await codeOf(client.call('eth_test', []))).toBe('unreachable')
    const nowhere = createRpc({ url: 'http://127.0.0.1:1' })
    expect(await codeOf(nowhere.call('eth_test', []))).toBe('unreachable')
    await nowhere.close()
  })

  it('an RPC call throws the caller’s reason when the caller gives up', async () => {
    const client = await serve(() => undefined)
    const reason = new Error('given up')
    const call = client.call(
      'eth_test',
      [],
      AbortSignal.any([AbortSignal.timeout(5_000), abortWith(reason)]),
    )
    await expect(call).rejects.toBe(reason)
  })
})

function abortWith(reason: Error): AbortSignal {
  const controller = new AbortController()
  setTimeout(() => controller.abort(reason), 20)
  return controller.signal
}
