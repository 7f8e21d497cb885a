import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Identity } from 'ehbp'
import {
  CREDENTIAL_INFO,
  createFrameReader,
  REQUEST_INFO,
  RESPONSE_EXPORT,
} from '#attestation/ehbp.ts'
import { sealCall } from '#client/encryption.ts'
import { createFrameSealer } from '#enclave/encryption/frames.ts'
import { KEY_BYTES, publicKeyOf, setUpRecipient } from '#enclave/encryption/hpke.ts'

/*
 * Makes test/vectors/ehbp: exchanges of the package ehbp and of this client with an enclave, with
 * every value that opens them. `node test/client/ehbp-vectors.ts`. The senders' keys are random, so
 * each run makes others.
 */

/** One exchange. Bytes are hex. */
export type EhbpExchange = {
  readonly about: string
  /** The enclave's X25519 key, both halves. */
  readonly secret_key: string
  readonly public_key: string
  /** The same as /.well-known/hpke-keys has it (RFC 9458 section 3). */
  readonly key_configuration: string
  readonly request: {
    readonly encapsulated_key: string
    readonly body: string
    readonly content: string
    /** Of Fine-Tune-Authorization. */
    readonly credential: { readonly header: string; readonly content: string } | null
  }
  readonly exported_secret: string
  readonly response: {
    readonly nonce: string
    readonly frames: readonly string[]
    readonly contents: readonly string[]
  }
}

export const EXCHANGES = join(import.meta.dirname, '../vectors/ehbp')

/** A key that no enclave has: it opens these exchanges alone. */
const SECRET_KEY = Buffer.alloc(KEY_BYTES, 0x42)
const CREDENTIAL = 'sk-a-credential-of-the-caller'
const CONTENT = JSON.stringify({
  model: 'demo/echo',
  messages: [{ role: 'user', content: 'Größe? 😀 \u0000' }],
})
/** An event each, one of them with nothing, one longer than a packet. */
const CONTENTS = ['data: {"a":1}\n\n', '', `data: "${'ü'.repeat(5_000)}"\n\n`, 'data: [DONE]\n\n']

type Sealed = Pick<EhbpExchange['request'], 'encapsulated_key' | 'body'> & {
  readonly header: string | null
}

async function sealByPackage(): Promise<Sealed> {
  const identity = await Identity.fromPublicKeyHex(publicKeyOf(SECRET_KEY).toString('hex'))
  const { request } = await identity.encryptRequestWithContext(
    new Request('https://gateway.example/', { method: 'POST', body: CONTENT }),
  )
  return {
    encapsulated_key: request.headers.get('ehbp-encapsulated-key') ?? '',
    body: Buffer.from(await request.arrayBuffer()).toString('hex'),
    header: null,
  }
}

async function sealByClient(): Promise<Sealed> {
  const target = { notary: `0x${'00'.repeat(20)}`, publicKey: publicKeyOf(SECRET_KEY) }
  const body = Buffer.from(CONTENT)
  const sealed = await sealCall({ target, body, credential: CREDENTIAL })
  return {
    encapsulated_key: sealed.headers['ehbp-encapsulated-key'] ?? '',
    body: Buffer.from(sealed.body).toString('hex'),
    header: sealed.headers['fine-tune-authorization'] ?? null,
  }
}

/** As an enclave opens and answers it. */
function answer(about: string, { header, ...sealed }: Sealed): EhbpExchange {
  const publicKey = publicKeyOf(SECRET_KEY)
  const enc = Buffer.from(sealed.encapsulated_key, 'hex')
  const context = setUpRecipient({ secretKey: SECRET_KEY, publicKey }, { enc, info: REQUEST_INFO })
  const frames = [...createFrameReader(1_000_000).push(Buffer.from(sealed.body, 'hex'))]
  const content = Buffer.concat(frames.map((frame) => context.open(frame))).toString()
  const secret = context.export(RESPONSE_EXPORT, KEY_BYTES)
  const responseNonce = Buffer.alloc(KEY_BYTES, 0x17)
  const sealer = createFrameSealer({ secret, enc, responseNonce })
  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
  return {
    about,
    secret_key: hex(SECRET_KEY),
    public_key: hex(publicKey),
    key_configuration: `000020${hex(publicKey)}000400010002`,
    request: {
      ...sealed,
      content,
      credential: header === null ? null : { header, content: CREDENTIAL },
    },
    exported_secret: hex(secret),
    response: {
      nonce: hex(responseNonce),
      frames: CONTENTS.map((text) => hex(sealer.seal(Buffer.from(text)))),
      contents: CONTENTS,
    },
  }
}

if (import.meta.main) {
  await mkdir(EXCHANGES, { recursive: true })
  const made = {
    'by-ehbp': answer(
      'The npm package ehbp 0.1.7 asks, an enclave answers.',
      await sealByPackage(),
    ),
    'by-client': answer(
      `This client asks, with a credential (info "${CREDENTIAL_INFO}"); an enclave answers.`,
      await sealByClient(),
    ),
  }
  for (const [name, exchange] of Object.entries(made))
    await writeFile(join(EXCHANGES, `${name}.json`), `${JSON.stringify(exchange, null, 2)}\n`)
}
