import { createTransport, Identity, KeyConfigMismatchError, Transport } from 'ehbp'

/** A `fetch` whose bodies and answers only the caller and an enclave can read. */
export type EncryptedFetch = (url: string, init: RequestInit) => Promise<Response>

/** Where keys come from; tests do not verify them. */
type Keys = 'well-known' | 'notaries'

type Target = { readonly transport: Transport; readonly headers: Readonly<Record<string, string>> }

/**
 * A `fetch` that encrypts bodies with the `ehbp` package: to the key that the gateway at `origin`
 * publishes, or to the keys of all notaries in use in turn. If a key is gone, it fetches keys again
 * and repeats the call once. EHBP allows this, because such a call was not processed.
 */
export function createEncryptedFetch(
  origin: () => string,
  keys: Keys = 'well-known',
): EncryptedFetch {
  let known: Promise<readonly Target[]> | null = null
  let calls = 0
  const send: EncryptedFetch = async (url, init) => {
    known ??= keys === 'well-known' ? fetchOne(origin()) : fetchAll(origin())
    const used = known
    try {
      const targets = await used
      const target = targets[calls++ % targets.length]
      if (target === undefined) throw new Error('expected an enclave in use')
      const headers = { ...(init.headers as Record<string, string>), ...target.headers }
      return await target.transport.request(url, { ...init, headers })
    } catch (error) {
      // A key that could not be fetched, or that is gone, is not used for later calls.
      if (known === used) known = null
      throw error
    }
  }
  return async (url, init) => {
    try {
      return await send(url, init)
    } catch (error) {
      if (!(error instanceof KeyConfigMismatchError)) throw error
      return send(url, init)
    }
  }
}

async function fetchOne(origin: string): Promise<readonly Target[]> {
  return [{ transport: await createTransport(origin), headers: {} }]
}

async function fetchAll(origin: string): Promise<readonly Target[]> {
  const { notaries } = (await (await fetch(`${origin}/v1/notaries`)).json()) as {
    notaries: readonly { notary: string; encryption_keys: readonly { public_key: string }[] }[]
  }
  const usable = notaries.flatMap(({ notary, encryption_keys: [newest] }) =>
    newest === undefined ? [] : [{ notary, publicKey: newest.public_key }],
  )
  return Promise.all(
    usable.map(async ({ notary, publicKey }) => {
      const config = Buffer.from(`000020${publicKey}000400010002`, 'hex')
      const identity = await Identity.unmarshalPublicConfig(config)
      const transport = new Transport(identity, new URL(origin).host)
      return { transport, headers: { 'affidavit-notary': notary } }
    }),
  )
}
