import { randomBytes } from 'node:crypto'
import { Wallet } from 'ethers'
import { completionDigest } from '#attestation/account.ts'
import { decodeHex, encodeBase64, encodeHex } from '#attestation/bytes.ts'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashReceipt } from '#attestation/log-proof.ts'
import type { Receipt } from '#attestation/receipt.ts'
import { hashChunks, hashCompletion } from '#attestation/record-hash.ts'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import { createNsmClient, type Nsm } from '#enclave/nsm/nsm.ts'
import { createCertificateChain } from '#src/local/nsm/certificate-chain.ts'
import { openDevelopmentRoot } from '#src/local/nsm/development-root.ts'
import type { SourceMeasurements } from '#src/local/nsm/measured-source.ts'
import { createSecurityModule } from '#src/local/nsm/security-module.ts'
import { credentialOf } from '../attestation/build-record.ts'

/** An entry of `GET /v1/notaries`. */
export type NotaryEntry = Readonly<Record<string, unknown>> & {
  readonly notary: string
  readonly public_key: string
  readonly attestation: string
  readonly boot_configuration: JsonObject
}

/** A notary made by an attacker who has the key of an attestation root: it signs any statement. */
export type ForgedNotary = {
  readonly notary: string
  /**
   * Its entry as the gateway would list it, with a document over `nonce`; null: without a nonce.
   */
  entry(nonce: Uint8Array | null): Promise<NotaryEntry>
  /** A document (base64) with its code and configuration for any public key, 0x and hex. */
  documentFor(publicKey: string, nonce?: Uint8Array): Promise<string>
  /** The create response with any answer to any request; its proof is consistent. */
  answer(exchange: Exchange): Promise<JsonObject>
  /** The same for a stream: its chunks, the last with the proof. */
  stream(
    exchange: Omit<Exchange, 'response'> & { chunks: readonly JsonObject[] },
  ): Promise<readonly JsonObject[]>
}

type Exchange = {
  readonly request: JsonObject
  readonly response: JsonObject
  readonly receipt?: Partial<Receipt>
}

export type ForgedNotaryOptions = {
  /** File with the key of the root; null: a new root. */
  readonly rootFile: string | null
  readonly measurements: SourceMeasurements
  readonly boot: JsonObject
  /** Clock of its documents; Unix milliseconds. */
  readonly now?: () => number
}

/** Makes a forged notary. Its log has one leaf at a time: the completion that it signed last. */
export async function forgeNotary(options: ForgedNotaryOptions): Promise<ForgedNotary> {
  const { boot, now = Date.now } = options
  const { signingKey, address } = Wallet.createRandom()
  const nsm = await openModule(options)
  const publicKey = decodeHex(signingKey.publicKey)
  const userData = digestBootConfiguration(boot)
  const attest = async (nonce: Uint8Array | null) =>
    encodeBase64(await nsm.attest({ publicKey, userData, nonce }))
  const provider = (boot.providers as readonly JsonObject[]).find(({ name }) => name === 'demo')

  async function prove({ request, response, receipt = {} }: Exchange, streamHash: string | null) {
    const hashes = hashCompletion({ request, response })
    const full: Receipt = {
      version: 1,
      index: 0,
      hash: hashes.hash,
      request_hash: hashes.requestHash,
      response_hash: hashes.responseHash,
      forwarded_hash: 'a'.repeat(64),
      received_hash: 'b'.repeat(64),
      provider: { name: String(provider?.name), origin: String(provider?.origin), tls: null },
      model: { requested: String(request.model), returned: String(response.model) },
      outcome: 'complete',
      stream_hash: streamHash,
      attempt: 1,
      encrypted: false,
      credential: credentialOf(request),
      dialect: 'chat',
      headers: {},
      started_at: now() - 5,
      finished_at: now(),
      ...receipt,
    }
    const root = hashReceipt(full)
    const domain = { chainId: Number(boot.chain_id), contract: String(boot.contract) }
    return {
      hash: hashes.hash,
      public_key: signingKey.publicKey,
      signature: signingKey.sign(completionDigest(decodeHex(hashes.hash))).serialized,
      tx_hash: `0x${'11'.repeat(32)}`,
      attestation: await attest(null),
      receipt: full,
      log: {
        size: 1,
        root: encodeHex(root),
        signature: signingKey.sign(treeHeadDigest(domain, { size: 1, root })).serialized,
        path: [],
        chain_id: domain.chainId,
        contract: domain.contract,
      },
    }
  }

  return {
    notary: address.toLowerCase(),
    entry: async (nonce) => ({
      notary: address.toLowerCase(),
      public_key: signingKey.publicKey,
      status: 'in_use',
      attestation: await attest(nonce),
      boot_configuration: boot,
    }),
    documentFor: async (key, nonce) =>
      encodeBase64(await nsm.attest({ publicKey: decodeHex(key), userData, nonce: nonce ?? null })),
    answer: async (exchange) => ({ ...exchange.response, ...(await prove(exchange, null)) }),
    stream: async ({ chunks, ...exchange }) => {
      const response = assembleCompletion(chunks)
      const proof = await prove({ ...exchange, response }, hashChunks(chunks))
      return chunks.with(-1, { ...chunks.at(-1), ...proof })
    },
  }
}

/** A module whose clock, unlike its root's, may be wrong. */
async function openModule({
  rootFile,
  measurements,
  now = Date.now,
}: ForgedNotaryOptions): Promise<Nsm> {
  const root = await openDevelopmentRoot(rootFile, Date.now())
  const identity = {
    instanceId: `i-0${randomBytes(8).toString('hex')}`,
    enclaveId: randomBytes(8),
  }
  const chainAt = createCertificateChain(root, identity)
  const module = createSecurityModule({ identity, measurements, chainAt, now })
  return createNsmClient('software', {
    exchange: async (request) => module.processRequest(request),
    close: () => undefined,
  })
}
