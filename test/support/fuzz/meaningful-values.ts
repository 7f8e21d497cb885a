import { setTimeout as sleep } from 'node:timers/promises'
import { createMeasuredNode, createNode, getJson, sendBody } from '../register-node.ts'
import { BUDGETED } from './examples.ts'
import type { Dictionary } from './schema-arbitrary.ts'

type Caller = { readonly url: string; readonly key: string }

/** How many keys are made to be revoked, and enclaves to be drained and forgotten. */
const VICTIMS = 5

/** Prefix of the paths of these enclaves: no process listens there. */
export const NOBODY = '/tmp/nobody'

/**
 * Values that pass the first look-ups of a service: ids of its records, nodes, keys, images and
 * enclaves.
 */
export type MeaningfulValues = {
  readonly dictionary: Dictionary
  /** A node of the caller's that no agent runs. */
  readonly nodeId: string
}

/**
 * Makes one of each thing, with the caller's key, and gives their names. The service is a
 * demonstration.
 */
export async function collectMeaningful(caller: Caller): Promise<MeaningfulValues> {
  const post = async (path: string, body: object) =>
    (await (await sendBody(caller, 'POST', path, body)).json()) as Readonly<Record<string, unknown>>
  const chat = { model: 'demo/echo', messages: [{ role: 'user', content: 'hello' }] }
  const { hash } = await post('/v1/verified/chat/completions', chat)
  const records = (await getJson(caller, '/v1/verified/chat/completions')).completions as readonly {
    readonly id: string
  }[]
  const logs = (await getJson(caller, '/v1/log')).logs as readonly { readonly notary: string }[]
  const drawn = await post('/v1/images/generations', {
    model: 'demo/image',
    prompt: 'a whale',
    size: '256x256',
  })
  const files = drawn.data as readonly { readonly url: string }[]
  const images = files.map(({ url }) => url.split('/').at(-1))
  const victims = await Promise.all(
    Array.from(
      { length: VICTIMS },
      async () => (await post('/v1/dashboard/keys', { name: 'victim' })).id,
    ),
  )
  // Changes to these enclaves have no effect on callers.
  const enclaves = Array.from({ length: VICTIMS }, (_, at) => `unix:${NOBODY}-${at}.sock`)
  for (const url of enclaves) await post('/v1/admin/enclaves', { url })
  // Accounts to be disabled, limited and deleted: the caller's is not among them.
  const accounts = Array.from({ length: VICTIMS }, (_, at) => `victim ${at}`)
  for (const name of [...accounts, BUDGETED]) await post('/v1/admin/accounts', { name })
  const evidence = await collectedEvidence(caller)
  const nodeId = await createMeasuredNode(caller, ['measured'])
  const positions = ['0', '1', '2']
  const notaries = logs.map(({ notary }) => notary)
  const dictionary = {
    hash: [hash],
    digest: [evidence],
    notary: notaries,
    nonce: ['ab'.repeat(16), 'AB'.repeat(64)],
    cursor: [...records.map(({ id }) => id), ...notaries, '0'],
    node_id: [nodeId, nodeId, nodeId, await createNode(caller), 'nobodys'],
    url: enclaves,
    name: [...accounts, 'nobodys'],
    account: [...accounts, 'nobodys'],
    key: [...victims, 'a'.repeat(16)],
    id: [...images, ...images, ...victims, 'nobodys'],
    content: ['hello', 'get_weather({"city":"Oslo"})', 'Write 7 words'],
    size: ['256x256', ...positions],
    index: positions,
    from: positions,
    to: positions,
    start: positions,
    end: positions,
  }
  return { dictionary, nodeId }
}

/** The digest of the evidence of the demonstration's attested provider, when it is collected. */
async function collectedEvidence(caller: Caller): Promise<string> {
  for (let tries = 0; tries < 200; tries++) {
    const { data } = (await getJson(caller, '/v1/providers')) as {
      readonly data: readonly Listed[]
    }
    const digest = data.map(({ evidence }) => evidence?.digest).find((found) => found !== undefined)
    if (digest !== undefined) return digest
    await sleep(100)
  }
  throw new Error('expected evidence of the attested provider within 20 s')
}

type Listed = { readonly evidence: { readonly digest: string } | null }

/** Models that `path` serves, and one unknown model. */
export function modelsFor(path: string): readonly string[] {
  if (path.startsWith('/v1/images/')) return ['demo/image', 'demo/image', 'nobodys']
  if (path === '/v1/embeddings') return ['demo/embedding', 'demo/embedding', 'nobodys']
  if (path.startsWith('/v1/node/')) return ['measured', 'measured', 'nobodys']
  return ['demo/echo', 'demo/tools', 'demo/lorem', 'demo/refusal', 'nobodys']
}
