import { createPrivateKey, createPublicKey, X509Certificate } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { z } from 'zod'
import { placeFile } from '../../runtime/place-file.ts'
import { ConfigurationError } from '../../runtime/read-settings.ts'
import {
  type Certified,
  developmentName,
  generateKey,
  makeAuthority,
  type Period,
  type SigningKey,
  toPem,
} from '../x509/certificate-builder.ts'
import { createIntelPki } from './intel-pki.ts'
import { CODE_AUTHORITY } from './sigstore-bundle.ts'

/** The keys that policies and old evidence depend on. */
export type TeeKeys = {
  /** Takes the place of Intel's root. */
  readonly intelRoot: Certified
  /** Takes the place of Sigstore's authority. `codeLog` takes the place of Sigstore's log. */
  readonly codeAuthority: Certified
  readonly codeLog: SigningKey
  readonly tlsAuthority: Certified
  readonly tls: SigningKey
}

const DAY_MS = 24 * 3_600_000

/** Returns a period of ten years, longer than any demonstration. */
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
 * Returns the keys in the file (mode 0600). The first use makes the keys. Throws ConfigurationError
 * if the file cannot be read.
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
  return {
    intelRoot: { key: intel.key('root'), certificate: intel.certificate('root') },
    codeAuthority: makeAuthority(CODE_AUTHORITY, life),
    codeLog: generateKey('P-256'),
    tlsAuthority: makeAuthority(TLS_AUTHORITY, life),
    tls: generateKey('P-256'),
  }
}

export const TLS_AUTHORITY = developmentName('Affidavit development provider CA')

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
      `DEMO_TEE_FOLDER: the keys in ${file} cannot be read; remove it, then new keys are created`,
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
