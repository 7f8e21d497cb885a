import { createPrivateKey, createPublicKey, X509Certificate } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { z } from 'zod'
import { placeFile } from '../../runtime/place-file.ts'
import { ConfigurationError } from '../../runtime/read-settings.ts'
import {
  authorityConstraints,
  buildCertificate,
  distinguishedName,
  ECDSA_SHA384,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  publicKeyInfo,
  type SigningKey,
  signWith,
  VERSION_3,
  validityOf,
} from './certificate-builder.ts'
import { derInteger } from './der-encoder.ts'
import { type Certified, createIntelPki, toPem } from './intel-pki.ts'
import type { Period } from './revocation-list.ts'
import { codeAuthority } from './sigstore-bundle.ts'

/** The keys of a simulated TEE that policies and old evidence depend on. */
export type TeeKeys = {
  /** Takes the place of Intel's root. */
  readonly intelRoot: Certified
  /** Takes the place of Sigstore's authority. The next member takes the place of its log. */
  readonly codeAuthority: Certified
  readonly codeLog: SigningKey
  /** Issues the certificate of the TLS key. */
  readonly tlsAuthority: Certified
  readonly tls: SigningKey
}

const DAY_MS = 24 * 3_600_000

/** A life of certificates that outlasts any demonstration: ten years. */
export function lifeFrom(nowMs: number): Period {
  return { from: new Date(nowMs - DAY_MS), to: new Date(nowMs + 3_650 * DAY_MS) }
}

/** PEM. */
const keySchema = z.string()
const certifiedSchema = z.strictObject({ key: keySchema, certificate: z.string() })
const fileSchema = z.strictObject({
  about: z.string(),
  intel_root: certifiedSchema,
  code_authority: certifiedSchema,
  code_log: keySchema,
  tls_authority: certifiedSchema,
  tls: keySchema,
})

const ABOUT = 'Keys of a simulated TEE, for development. They prove nothing.'

/**
 * Returns the keys in the file (mode 0600). Makes them at the first use, so that evidence and its
 * policy stay valid after a restart. Throws ConfigurationError if the file cannot be read.
 */
export async function openTeeKeys(file: string, nowMs: number): Promise<TeeKeys> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw error
  })
  if (text !== null) return parseTeeKeys(text, file)
  const keys = makeTeeKeys(nowMs)
  await mkdir(dirname(file), { recursive: true, mode: 0o700 })
  await placeFile(file, writeTeeKeys(keys), { draft: `${file}.draft`, mode: 0o600 })
  return keys
}

function makeTeeKeys(nowMs: number): TeeKeys {
  const life = lifeFrom(nowMs)
  const intel = createIntelPki(life)
  const [authority, tlsAuthority] = [generateKey(), generateKey()]
  return {
    intelRoot: { key: intel.key('root'), certificate: intel.certificate('root') },
    codeAuthority: { key: authority, certificate: codeAuthority(authority, life) },
    codeLog: generateKey('P-256'),
    tlsAuthority: { key: tlsAuthority, certificate: tlsAuthorityOf(tlsAuthority, life) },
    tls: generateKey('P-256'),
  }
}

/** The name of the authority that issues the provider's TLS certificate. */
export const TLS_AUTHORITY = distinguishedName('Affidavit development provider CA')

function tlsAuthorityOf(key: SigningKey, life: Period): Uint8Array<ArrayBuffer> {
  return buildCertificate({
    version: VERSION_3,
    serial: derInteger(1),
    innerAlgorithm: ECDSA_SHA384,
    issuer: TLS_AUTHORITY,
    validity: validityOf(life.from, life.to),
    subject: TLS_AUTHORITY,
    publicKey: publicKeyInfo(key),
    extensions: [authorityConstraints(0), keyUsage(KEY_USAGE_BITS.keyCertSign)],
    extraFields: [],
    outerAlgorithm: ECDSA_SHA384,
    sign: signWith(key),
  })
}

function parseTeeKeys(text: string, file: string): TeeKeys {
  try {
    const kept = fileSchema.parse(JSON.parse(text))
    return {
      intelRoot: readCertified(kept.intel_root),
      codeAuthority: readCertified(kept.code_authority),
      codeLog: readKey(kept.code_log),
      tlsAuthority: readCertified(kept.tls_authority),
      tls: readKey(kept.tls),
    }
  } catch {
    throw new ConfigurationError([
      `DEMO_TEE_FOLDER: the keys in ${file} cannot be read; remove it, then new keys are made`,
    ])
  }
}

function writeTeeKeys(keys: TeeKeys): string {
  const file: z.infer<typeof fileSchema> = {
    about: ABOUT,
    intel_root: writeCertified(keys.intelRoot),
    code_authority: writeCertified(keys.codeAuthority),
    code_log: writeKey(keys.codeLog),
    tls_authority: writeCertified(keys.tlsAuthority),
    tls: writeKey(keys.tls),
  }
  return `${JSON.stringify(file, null, 2)}\n`
}

function readKey(pem: string): SigningKey {
  const privateKey = createPrivateKey(pem)
  return { privateKey, publicKey: createPublicKey(privateKey) }
}

function writeKey({ privateKey }: SigningKey): string {
  return String(privateKey.export({ type: 'pkcs8', format: 'pem' }))
}

function readCertified({ key, certificate }: z.infer<typeof certifiedSchema>): Certified {
  return { key: readKey(key), certificate: new Uint8Array(new X509Certificate(certificate).raw) }
}

function writeCertified({ key, certificate }: Certified): z.infer<typeof certifiedSchema> {
  return { key: writeKey(key), certificate: toPem(certificate) }
}
