import { createDecipheriv } from 'node:crypto'
import http, { type IncomingMessage } from 'node:http'
import * as HPKE from 'hpke'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import {
  CREDENTIAL_INFO,
  createFrameReader,
  nonceAt,
  REQUEST_INFO,
  RESPONSE_EXPORT,
  RESPONSE_NONCE_HEADER,
  writeFrame,
} from '#attestation/ehbp.ts'
import { hkdfExpand, hkdfExtract } from '#enclave/encryption/hpke.ts'
import {
  CALL_HEADER,
  callPath,
  ENCLAVE_PATHS,
  ENCRYPTED_RECORDS,
  type EncryptedCall,
  type EncryptedFault,
  type EncryptedHead,
  type EncryptedSealed,
} from '#enclave/protocol/enclave-api.ts'
import { readAnswer } from './test-enclave.ts'

const suite = new HPKE.CipherSuite(
  HPKE.KEM_DHKEM_X25519_HKDF_SHA256,
  HPKE.KDF_HKDF_SHA256,
  HPKE.AEAD_AES_256_GCM,
)
const utf8 = (text: string) => new TextEncoder().encode(text)

/** A call as its caller sealed it. */
export type CallersCall = {
  /** `Ehbp-Encapsulated-Key`. */
  readonly enc: string
  /** Each with its length. */
  readonly frames: readonly Uint8Array[]
  readonly credential: string | null
  readonly secret: Uint8Array
}

/** Seals parts of a body, one frame each, to a key (hex), by the package `hpke`. */
export async function sealParts(
  publicKey: string,
  parts: readonly (string | Uint8Array)[],
  credential: string | null = null,
): Promise<CallersCall> {
  const { enc, ctx } = await setUp(publicKey, REQUEST_INFO)
  const frames: Uint8Array[] = []
  for (const part of parts)
    frames.push(writeFrame(await ctx.Seal(typeof part === 'string' ? utf8(part) : part)))
  return {
    enc: enc.toString('hex'),
    frames,
    credential:
      credential === null
        ? null
        : await sealCredential(publicKey, { credential, to: enc.toString('hex') }),
    secret: await ctx.Export(utf8(RESPONSE_EXPORT), 32),
  }
}

/** Seals a credential to a key, bound to the call of an encapsulated key. */
export async function sealCredential(
  publicKey: string,
  { credential, to }: { readonly credential: string; readonly to: string },
): Promise<string> {
  const { enc, ctx } = await setUp(publicKey, CREDENTIAL_INFO)
  const sealed = await ctx.Seal(utf8(credential), utf8(to))
  return Buffer.concat([enc, sealed]).toString('base64url')
}

async function setUp(publicKey: string, info: string) {
  const key = await suite.DeserializePublicKey(new Uint8Array(Buffer.from(publicKey, 'hex')))
  const { encapsulatedSecret, ctx } = await suite.SetupSender(key, { info: utf8(info) })
  return { enc: Buffer.from(encapsulatedSecret), ctx }
}

/** What an enclave answered an encrypted call with. */
export type OpenedAnswer = {
  /** Of the enclave's own answer: not 200 when it was refused before it was opened. */
  readonly status: number
  /** Such an answer's. */
  readonly plain: { readonly code?: string; readonly message?: string }
  readonly head: EncryptedHead | null
  readonly sealed: EncryptedSealed | null
  readonly fault: EncryptedFault | null
  /** Content of the frames. */
  readonly text: string
  /** All that the gateway saw. */
  readonly seen: Buffer
  /** Lengths of the frames' contents. */
  readonly lengths: readonly number[]
}

type Gateway = {
  readonly socketPath: string
  /** Default: chat. */
  readonly dialect?: DialectName
  /** What the gateway says of the call beside what the caller sealed. */
  readonly call?: Partial<EncryptedCall>
  /** What it brings when the call is sealed; null brings nothing. */
  readonly proof?: ((call: string) => object | null) | undefined
  readonly agent?: http.Agent
}

export const LOG_PROOF = {
  size: 1,
  root: 'ab'.repeat(32),
  signature: `0x${'cd'.repeat(65)}`,
  path: [],
  chain_id: 31337,
  contract: '0x5fbdb2315678afecb367f032d93f642f64180aa3',
}
export const TX_HASH = `0x${'ef'.repeat(32)}`
export const proofOf = (call: string) => ({ call, tx_hash: TX_HASH, log: LOG_PROOF })

/** Opens the request of an encrypted call; its body is for the test to write. */
export function openEncrypted(
  { socketPath, dialect = 'chat', call, agent }: Gateway,
  sealed: Pick<CallersCall, 'enc' | 'credential'>,
): http.ClientRequest {
  const header = {
    context: 'context',
    credentials: {},
    encapsulated_key: sealed.enc,
    sealed_credential: sealed.credential,
    ...call,
  }
  return http.request({
    socketPath,
    method: 'POST',
    path: callPath(ENCLAVE_PATHS.encrypted, dialect),
    ...(agent === undefined ? {} : { agent }),
    headers: { [CALL_HEADER]: Buffer.from(JSON.stringify(header)).toString('base64url') },
  })
}

/** Makes an encrypted call as the gateway does, and opens the answer as its caller does. */
export async function callEncrypted(
  gateway: Gateway,
  sealed: CallersCall,
  wire: Uint8Array = Buffer.concat(sealed.frames),
): Promise<OpenedAnswer> {
  const request = openEncrypted(gateway, sealed)
  request.end(wire)
  return readEncrypted(gateway, sealed, request)
}

/** Reads the answer of a request that openEncrypted made. */
export async function readEncrypted(
  { socketPath, proof = proofOf }: Gateway,
  { enc, secret }: Pick<CallersCall, 'enc' | 'secret'>,
  request: http.ClientRequest,
): Promise<OpenedAnswer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request.once('response', resolve)
    request.once('error', reject)
  })
  const parts: Buffer[] = []
  const reported = new Map<number, unknown>()
  const frames: Buffer[] = []
  let given = 0
  for await (const part of response as AsyncIterable<Buffer>) {
    parts.push(part)
    if (response.statusCode !== 200) continue
    const all = Buffer.concat(parts)
    while (all.length >= given + 5 && all.length >= given + 5 + all.readUInt32BE(given + 1)) {
      const kind = all.readUInt8(given)
      const content = all.subarray(given + 5, given + 5 + all.readUInt32BE(given + 1))
      given += 5 + content.length
      if (kind === ENCRYPTED_RECORDS.frame) frames.push(content)
      else reported.set(kind, JSON.parse(content.toString()))
      if (kind !== ENCRYPTED_RECORDS.sealed) continue
      const { call } = JSON.parse(content.toString()) as EncryptedSealed
      const brought = call === '' ? null : proof(call)
      if (brought !== null) await bring(socketPath, brought)
    }
  }
  const seen = Buffer.concat(parts)
  if (response.statusCode === 200 && given !== seen.length) throw new Error('half a record')
  const nonce = Buffer.from(String(response.headers[RESPONSE_NONCE_HEADER] ?? ''), 'hex')
  const contents = openFrames(frames, {
    secret,
    salt: Buffer.concat([Buffer.from(enc, 'hex'), nonce]),
  })
  return {
    status: response.statusCode ?? 0,
    plain: response.statusCode === 200 ? {} : JSON.parse(seen.toString()),
    head: (reported.get(ENCRYPTED_RECORDS.head) as EncryptedHead | undefined) ?? null,
    sealed: (reported.get(ENCRYPTED_RECORDS.sealed) as EncryptedSealed | undefined) ?? null,
    fault: (reported.get(ENCRYPTED_RECORDS.fault) as EncryptedFault | undefined) ?? null,
    text: Buffer.concat(contents).toString(),
    seen,
    lengths: contents.map(({ length }) => length),
  }
}

/** Brings a proof, as the gateway does; gives the status of the answer. */
export async function bring(socketPath: string, proof: object): Promise<number> {
  const request = http.request({ socketPath, method: 'POST', path: ENCLAVE_PATHS.encryptedProof })
  request.end(JSON.stringify(proof))
  return (await readAnswer(request)).status
}

function openFrames(
  frames: readonly Buffer[],
  options: { readonly secret: Uint8Array; readonly salt: Uint8Array },
): readonly Buffer[] {
  const prk = hkdfExtract(options.salt, options.secret)
  const key = hkdfExpand(prk, utf8('key'), 32)
  const base = hkdfExpand(prk, utf8('nonce'), 12)
  const reader = createFrameReader(2 ** 26)
  const ciphertexts = [...reader.push(Buffer.concat(frames))]
  reader.end()
  return ciphertexts.map((ciphertext, index) => {
    const decipher = createDecipheriv('aes-256-gcm', key, nonceAt(base, index))
    decipher.setAuthTag(ciphertext.subarray(-16))
    return Buffer.concat([decipher.update(ciphertext.subarray(0, -16)), decipher.final()])
  })
}
