import type { Affidavit } from './affidavit.ts'
import { getPath, postChat, VERIFIED_PATH } from './calls.ts'
import { until } from './until.ts'

/** What tests read of a verified completion. */
export type Completed = Readonly<Record<string, unknown>> & {
  readonly hash: string
  readonly tx_hash: string
  readonly public_key: string
  readonly receipt: { readonly index: number; readonly encrypted: boolean }
}

type Service = Pick<Affidavit, 'url' | 'apiKey'>

/** Makes a verified completion; rejects unless it is answered. */
export async function complete(
  { url, apiKey: key }: Service,
  content: string,
  model = 'demo/echo',
): Promise<Completed> {
  const reply = await postChat({ url, key }, { model, messages: [{ role: 'user', content }] })
  const text = await reply.text()
  if (reply.status !== 200) throw new Error(`expected a completion, got ${reply.status}: ${text}`)
  return JSON.parse(text) as Completed
}

/** The evidence of a completion as its owner gets it, once its anchor's block is in it. */
export async function fetchEvidence({ url, apiKey: key }: Service, hash: string): Promise<string> {
  let text = ''
  await until('the anchor is in a block', async () => {
    text = await (await getPath({ url, key }, `${VERIFIED_PATH}/${hash}/evidence`)).text()
    return JSON.parse(text).block !== null
  })
  return text
}
