import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { encodeHex } from '#attestation/bytes.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { BuiltHead, BuiltLog } from './audited-log.ts'

/** One request to the server. */
export type Question = {
  /** `log`, `log/heads`, `log/leaves`, …, without the notary. */
  readonly resource: string
  readonly notary: string | null
  readonly number: (name: string) => number | null
  /** How many questions came before this one, and how many for the same resource. */
  readonly at: number
  readonly of: number
}

/**
 * What a server does instead of an honest answer: it gives other JSON, a text that is not JSON, or
 * acts on the connection. `honest` gives the honest answer of the served log, or of another one.
 */
export type Attack = (
  question: Question,
  honest: (log?: BuiltLog) => JsonObject,
) => JsonObject | string | ((response: ServerResponse, request: IncomingMessage) => void)

export type EquivocatingServer = {
  readonly url: string
  /** The requests so far, in order: path and query. */
  readonly asked: readonly string[]
  /** From now on it serves these logs, with this attack (null: honestly). */
  serve(logs: readonly BuiltLog[], attack?: Attack | null): void
  close(): Promise<void>
}

/** Most entries of a page here: small, so that small logs have many pages. */
export const PAGE = { heads: 3, leaves: 7, records: 4 } as const

export const TEST_KEY = 'sk-aff-test'

/**
 * Starts a real HTTP server over logs that were really built and signed. It answers as a gateway
 * does, or as an attack does. Records need TEST_KEY.
 */
export async function startEquivocatingServer(): Promise<EquivocatingServer> {
  let logs: readonly BuiltLog[] = []
  let attack: Attack | null = null
  const asked: string[] = []
  const counts = new Map<string, number>()

  const server = createServer((request, response) => {
    asked.push(request.url ?? '')
    const url = new URL(request.url ?? '', 'http://127.0.0.1')
    const question = readQuestion(url, { asked: asked.length - 1, counts })
    const isLocked =
      question.resource === 'log/records' && request.headers.authorization !== `Bearer ${TEST_KEY}`
    const honest = (other?: BuiltLog): JsonObject => {
      const log = other ?? logs.find(({ notary }) => notary.account.notary === question.notary)
      return question.resource === 'logs'
        ? listLogs(other === undefined ? logs : [other])
        : answer(question, log)
    }
    try {
      if (isLocked) throw new Refusal(401, 'no key')
      const given = attack === null ? honest() : attack(question, honest)
      if (typeof given === 'function') given(response, request)
      else response.end(typeof given === 'string' ? given : JSON.stringify(given))
    } catch (fault) {
      if (!(fault instanceof Refusal)) throw fault
      response.statusCode = fault.status
      response.end(JSON.stringify({ error: { message: fault.message, code: 'refused' } }))
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    serve(next, nextAttack = null) {
      logs = next
      attack = nextAttack
      counts.clear()
      asked.length = 0
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

class Refusal extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

function readQuestion(
  url: URL,
  { asked, counts }: { readonly asked: number; readonly counts: Map<string, number> },
): Question {
  const [, , first, notary, resource] = url.pathname.split('/')
  const name =
    first !== 'log'
      ? 'unknown'
      : notary === undefined
        ? 'logs'
        : resource === undefined
          ? 'log'
          : `log/${resource}`
  const of = counts.get(name) ?? 0
  counts.set(name, of + 1)
  return {
    resource: name,
    notary: notary ?? null,
    number: (parameter) =>
      url.searchParams.has(parameter) ? Number(url.searchParams.get(parameter)) : null,
    at: asked,
    of,
  }
}

/** What an honest gateway answers. */
function answer({ resource, number }: Question, log: BuiltLog | undefined): JsonObject {
  if (log === undefined) throw new Refusal(404, 'There is no log of this notary')
  const size = log.leaves.length
  const { notary } = log.notary.account
  switch (resource) {
    case 'log':
      return describeLog(log)
    case 'log/heads': {
      const after = number('cursor')
      const limit = Math.min(number('limit') ?? 100, PAGE.heads)
      const rest = log.heads.filter((head) => head.size > (after ?? -1))
      const heads = rest.slice(0, limit)
      const cursor = rest.length > limit ? (heads.at(-1)?.size ?? null) : null
      const attestations = log.attestations.filter(
        (one) => one.size > (after ?? -1) && (cursor === null || one.size <= cursor),
      )
      return { notary, heads: heads.map(describeHead), attestations: [...attestations], cursor }
    }
    case 'log/boot-statement': {
      const { bootStatement } = log
      return { notary, statement: bootStatement && JSON.parse(JSON.stringify(bootStatement)) }
    }
    case 'log/leaves': {
      const start = number('start') ?? 0
      const end = Math.min(number('end') ?? size, start + PAGE.leaves)
      if ((number('end') ?? size) > size || start > size) throw new Refusal(422, 'out of range')
      return { notary, start, end, leaves: log.leaves.slice(start, end).map(encodeHex) }
    }
    case 'log/inclusion': {
      const [index = 0, of = size] = [number('index') ?? 0, number('size') ?? size]
      const leaf = log.leaves[index]
      if (leaf === undefined || index >= of || of > size) throw new Refusal(422, 'out of range')
      const path = log.reference.path(index, of).map(encodeHex)
      return {
        notary,
        index,
        size: of,
        root: encodeHex(log.reference.root(of)),
        leaf_hash: encodeHex(leaf),
        path,
      }
    }
    case 'log/consistency': {
      const [from, to] = [number('from') ?? 0, number('to') ?? size]
      if (to > size || from > to) throw new Refusal(422, 'out of range')
      const path =
        from === 0 || from === to ? [] : log.reference.consistency(from, to).map(encodeHex)
      return { notary, from, to, path }
    }
    case 'log/records': {
      const start = number('start') ?? 0
      const records = log.records.slice(start, start + PAGE.records)
      const next = start + records.length < size ? start + records.length : null
      return { notary, records: [...records], next }
    }
    default:
      throw new Refusal(404, 'no such page')
  }
}

function listLogs(logs: readonly BuiltLog[]): JsonObject {
  return { logs: logs.map(describeLog), cursor: null }
}

function describeLog({ notary, leaves, heads, reference, document }: BuiltLog): JsonObject {
  const newest = heads.findLast(
    ({ anchor }) => anchor.state === 'mined' || anchor.state === 'confirmed',
  )
  return {
    notary: notary.account.notary,
    public_key: `0x${encodeHex(notary.account.publicKey)}`,
    chain_id: notary.chainId,
    contract: notary.contract,
    boot_configuration: notary.bootConfiguration,
    created_at: 1_790_000_000,
    size: leaves.length,
    root: encodeHex(reference.root(leaves.length)),
    head: newest === undefined ? null : describeHead(newest),
    attestation_sha256: createHash('sha256').update(Buffer.from(document, 'base64')).digest('hex'),
  }
}

/** A head as it is served. */
export function describeHead({ size, root, signature, createdAt, anchor }: BuiltHead): JsonObject {
  return {
    size,
    root: encodeHex(root),
    signature: `0x${encodeHex(signature)}`,
    created_at: createdAt,
    anchor,
  }
}
