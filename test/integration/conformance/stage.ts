import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, vi } from 'vitest'
import { type Affidavit, startAffidavit } from '../../support/affidavit.ts'
import {
  type ApiReply,
  type DocumentedApi,
  openDocumentedApi,
} from '../../support/documented-api.ts'
import { createMeasuredNode, createNode } from '../../support/register-node.ts'
import { startScriptedEndpoint } from '../../support/scripted-endpoint.ts'
import { connectScriptedNode } from '../../support/scripted-node.ts'
import { CHAT } from './chat-rows.ts'
import { type KnownFacts, PLAIN_CHAT, SERVED_MODEL, VERIFIED_CHAT } from './endpoints.ts'

/** The running service, which holds an example of everything that callers can ask for. */
export type Stage = {
  readonly service: Affidavit
  readonly api: DocumentedApi
  readonly known: KnownFacts
  /** Keys of the same account, each with one scope. */
  readonly keys: Readonly<Record<'inference' | 'nodes', string>>
  /** `query` begins with its question mark. */
  get(path: string, query?: string): Promise<ApiReply>
  post(path: string, body: unknown): Promise<ApiReply>
  close(): Promise<void>
}

/** A model whose node went away. */
export const AWAY_MODEL = 'conformance/away'

/** A model that may be called once a minute. */
export const SCARCE_MODEL = 'conformance/scarce'

/** Calls that the serving node served: more than its statistics list. */
export const SERVED_CALLS = 12

const TIERS = {
  default_tier: 'tests',
  tiers: {
    tests: {
      description: 'For tests',
      groups: [
        {
          name: 'scarce',
          models: [SCARCE_MODEL],
          requests_per_minute: 1,
          requests_per_day: 1_000,
          tokens_per_minute: 50_000,
          tokens_per_day: 100_000,
        },
        { name: 'others' },
      ],
    },
  },
}

/** Starts the whole service, with the test's own nodes and search provider. */
export async function openStage(): Promise<Stage> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-conformance-'))
  const tiersFile = join(folder, 'tiers.json')
  await writeFile(tiersFile, JSON.stringify(TIERS))
  const item = { title: 't', url: 'https://example.com', content: 'c' }
  const search = await startScriptedEndpoint(() => ({
    results: Array.from({ length: 12 }, () => item),
  }))
  const service = await startAffidavit({
    logLevel: 'warn',
    variables: {
      RATE_LIMIT_TIERS_FILE: tiersFile,
      SEARCH_PROVIDER: 'searxng',
      SEARCH_URL: search.origin,
    },
  })
  const api = await openDocumentedApi(service.url, service.apiKey)
  const get = (path: string, query = '') => api.call({ method: 'GET', path, target: path + query })
  const post = (path: string, body: unknown) => api.call({ method: 'POST', path, body })
  const { known, closeNodes } = await prepare(service, post)
  // Statistics of nodes are stored a moment after the answers.
  await vi.waitFor(
    async () => {
      const { value } = await get('/v1/node/stats', `?node_id=${known.servingNode}`)
      expect(value).toMatchObject({ requests_served: SERVED_CALLS })
    },
    { timeout: 30_000, interval: 100 },
  )
  const makeKey = async (scope: 'inference' | 'nodes') => {
    const { value } = await post('/v1/dashboard/keys', { name: scope, scopes: [scope] })
    return (value as { readonly key: string }).key
  }
  const keys = { inference: await makeKey('inference'), nodes: await makeKey('nodes') }
  return {
    service,
    api,
    known,
    keys,
    get,
    post,
    async close() {
      await closeNodes()
      await service.stop()
      await search.stop()
      await rm(folder, { recursive: true })
    },
  }
}

async function prepare({ url, apiKey: key }: Affidavit, post: Stage['post']) {
  const caller = { url, key }

  /** Connects a node, and calls it until it has answered `calls` times. */
  async function serve(model: string, calls: number) {
    const nodeId = await createMeasuredNode(caller, [model])
    const node = await connectScriptedNode({ ...caller, nodeId, model })
    const ask = async () => {
      const { status } = await post(PLAIN_CHAT, { ...CHAT, model })
      if (status !== 200) throw new Error(`expected ${model} to be served, got ${status}`)
    }
    // A new node is measured before it serves.
    await vi.waitFor(ask, { timeout: 30_000, interval: 50 })
    for (let call = 1; call < calls; call++) await ask()
    return { nodeId, node }
  }

  await (await serve(AWAY_MODEL, 1)).node.close()
  const serving = await serve(SERVED_MODEL, SERVED_CALLS)
  const completion = (await post(VERIFIED_CHAT, CHAT)).value as { readonly hash: string }
  return {
    known: {
      hash: completion.hash,
      servingNode: serving.nodeId,
      idleNode: await createNode(caller, 'idle node'),
    },
    closeNodes: () => serving.node.close(),
  }
}
