import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { z } from 'zod'
import type { ChainAnswers } from './manifest.ts'

/** A JSON-RPC endpoint on loopback that gives a case's answers about a chain. */
export type ChainEndpoint = { readonly url: string; close(): Promise<void> }

const Call = z.object({
  id: z.union([z.number(), z.string()]),
  method: z.string(),
  params: z.array(z.unknown()).default([]),
})

/**
 * Starts an endpoint that answers `eth_chainId`, `eth_blockNumber` and `eth_getBlockByNumber` (by
 * number; it gives number, hash and a known timestamp), one at a time or in a batch, and refuses all other
 * methods.
 */
export async function startChainEndpoint(answers: ChainAnswers): Promise<ChainEndpoint> {
  const server = createServer(async (request, response) => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part)
    // Pages of any origin may call, as at public endpoints.
    response.setHeader('access-control-allow-origin', '*')
    response.setHeader('access-control-allow-headers', 'content-type')
    if (request.method === 'OPTIONS') return void response.writeHead(204).end()
    const replies = replyTo(Buffer.concat(parts).toString(), answers)
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(replies))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

function replyTo(body: string, answers: ChainAnswers): unknown {
  const calls = z.union([Call, z.array(Call)]).parse(JSON.parse(body))
  return Array.isArray(calls) ? calls.map((call) => reply(call, answers)) : reply(calls, answers)
}

function reply({ id, method, params }: z.infer<typeof Call>, answers: ChainAnswers): object {
  const result = resultOf(method, params[0], answers)
  return result === undefined
    ? { jsonrpc: '2.0', id, error: { code: -32601, message: `no ${method} here` } }
    : { jsonrpc: '2.0', id, result }
}

function resultOf(method: string, number: unknown, answers: ChainAnswers): unknown {
  const quantity = (value: number) => `0x${value.toString(16)}`
  switch (method) {
    case 'eth_chainId':
      return quantity(answers.chain_id)
    case 'eth_blockNumber':
      return quantity(answers.newest_block)
    case 'eth_getBlockByNumber': {
      const hash = answers.blocks[String(Number(number))]
      const time = answers.times?.[String(Number(number))]
      const timed = time === undefined ? {} : { timestamp: quantity(time) }
      return hash === undefined ? null : { number, hash, ...timed }
    }
    default:
      return undefined
  }
}
