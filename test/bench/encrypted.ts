import { Pool } from 'undici'
import { ENCAPSULATED_KEY_HEADER, RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import { sealCall } from '#client/encryption.ts'
import type { Affidavit } from '../support/affidavit.ts'
import { VERIFIED_PATH } from '../support/calls.ts'
import { median } from './peers/table.ts'

const CONNECTIONS = 32
const ROUNDS = 5
const CALLS_PER_ROUND = 600

type Prepared = { readonly headers: Readonly<Record<string, string>>; readonly body: Uint8Array }

/**
 * Whole encrypted calls a second at 32 connections, as a share of plain verified ones, in turns.
 * Calls are sealed before, and answers are not opened.
 */
export async function compareEncrypted(service: Affidavit): Promise<number> {
  const ratios: number[] = []
  for (let round = 0; round <= ROUNDS; round += 1) {
    const plainMs = await run(service, false)
    const encryptedMs = await run(service, true)
    // The first round warms up.
    if (round > 0) ratios.push(plainMs / encryptedMs)
  }
  return median(ratios)
}

/** Milliseconds of a round. */
async function run(service: Affidavit, isEncrypted: boolean): Promise<number> {
  const calls = await prepare(service, isEncrypted)
  const pool = new Pool(service.url, { connections: CONNECTIONS, pipelining: 1 })
  const start = performance.now()
  const work = async () => {
    for (let call = calls.pop(); call !== undefined; call = calls.pop()) await send(pool, call)
  }
  await Promise.all(Array.from({ length: CONNECTIONS }, work))
  const tookMs = performance.now() - start
  await pool.close()
  return tookMs
}

async function send(pool: Pool, { headers, body }: Prepared): Promise<void> {
  const reply = await pool.request({ method: 'POST', path: VERIFIED_PATH, headers, body })
  await reply.body.dump()
  const isSealed = reply.headers[RESPONSE_NONCE_HEADER] !== undefined
  if (reply.statusCode !== 200 || isSealed !== ENCAPSULATED_KEY_HEADER in headers)
    throw new Error(`a call failed with status ${reply.statusCode}`)
}

async function prepare(service: Affidavit, isEncrypted: boolean): Promise<Prepared[]> {
  const target = await readTarget(service)
  const headers = {
    'content-type': 'application/json',
    authorization: `Bearer ${service.apiKey}`,
  }
  const prepared: Prepared[] = []
  for (let at = 0; at < CALLS_PER_ROUND; at += 1) {
    const body = Buffer.from(
      JSON.stringify({
        model: 'demo/echo',
        messages: [{ role: 'user', content: 'Say in one sentence why evidence matters.' }],
        affidavit: {
          nonce: Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('hex'),
        },
      }),
    )
    if (!isEncrypted) prepared.push({ headers, body })
    else {
      const sealed = await sealCall({ target, body, credential: null })
      prepared.push({ headers: { ...headers, ...sealed.headers }, body: sealed.body })
    }
  }
  return prepared
}

/** The enclave's newest key. This benchmark does not check that it belongs to the enclave. */
async function readTarget({ url }: Affidavit) {
  const { notaries } = (await (await fetch(`${url}/v1/notaries`)).json()) as {
    readonly notaries: readonly {
      readonly notary: string
      readonly encryption_keys: readonly { readonly public_key: string }[]
    }[]
  }
  const [entry] = notaries
  const [key] = entry?.encryption_keys ?? []
  if (entry === undefined || key === undefined) throw new Error('expected an encryption key')
  return { notary: entry.notary, publicKey: new Uint8Array(Buffer.from(key.public_key, 'hex')) }
}
