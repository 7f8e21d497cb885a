import {
  createPrivateKey,
  createPublicKey,
  randomBytes,
  randomUUID,
  X509Certificate,
} from 'node:crypto'
import { link, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { placeFile } from '../../runtime/place-file.ts'
import { developmentName, generateKey } from '../x509/certificate-builder.ts'
import { CERTIFICATE_PROFILES, type Issuer, issueCertificate, keyIdOf } from './certificate.ts'

/** The software NSM cannot be used. The message describes what the operator must change. */
export class SoftwareNsmError extends Error {
  override readonly name = 'SoftwareNsmError'
  readonly code: 'invalid_root' | 'invalid_source'

  constructor(code: 'invalid_root' | 'invalid_source', message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/** No default policy trusts this root: a verifier's user must pass the root's certificate. */
export type DevelopmentRoot = Issuer & {
  /** DER. */
  readonly certificate: Uint8Array
  /** Unix seconds. */
  readonly notAfter: number
}

/** A root that expires within this time is refused: its certificates may last this long. */
export const ROOT_LEFT_SECONDS = 20 * 86_400 + 3_600

/**
 * Returns the root in `rootFile` (PEM: private key and certificate, mode 0600). The first use makes
 * the root. Later uses keep it, so that documents can be checked after a restart. Two processes
 * that start at the same time get the same root. A second file (rootCertificateFile) has only the
 * certificate, for `--root`. For null, writes no file. Throws SoftwareNsmError `invalid_root`.
 */
export async function openDevelopmentRoot(
  rootFile: string | null,
  nowMs: number,
): Promise<DevelopmentRoot> {
  if (rootFile === null)
    return parseDevelopmentRoot(makeDevelopmentRoot(nowMs), { nowMs, file: 'in memory' })
  const stored = await readRootFile(rootFile)
  if (stored === null) await createOnce(rootFile, makeDevelopmentRoot(nowMs))
  const pem = stored ?? (await readRootFile(rootFile)) ?? ''
  const root = parseDevelopmentRoot(pem, { nowMs, file: rootFile })
  await writeCertificate(rootCertificateFile(rootFile), root.certificate)
  return root
}

/** `root.pem` → `root.crt.pem`. */
export function rootCertificateFile(rootFile: string): string {
  return `${rootFile.replace(/\.pem$/, '')}.crt.pem`
}

/** PEM: PKCS#8 key, then certificate. */
export function makeDevelopmentRoot(nowMs: number): string {
  const { privateKey, publicKey } = generateKey()
  const profile = CERTIFICATE_PROFILES.root
  const issued = Math.floor(nowMs / 1000)
  const certificate = issueCertificate(
    {
      profile,
      subject: ROOT_NAME,
      publicKey,
      serial: randomBytes(16),
      notBefore: issued - profile.backdateSeconds,
      notAfter: issued + profile.lifeSeconds,
      crlUri: '',
    },
    { name: ROOT_NAME, keyId: keyIdOf(publicKey), privateKey },
  )
  return `${privateKey.export({ type: 'pkcs8', format: 'pem' })}${new X509Certificate(certificate)}`
}

/** Differs from AWS's root, CN=aws.nitro-enclaves, so that the two are never confused. */
const ROOT_NAME = developmentName('Affidavit development root')

function parseDevelopmentRoot(
  pem: string,
  { nowMs, file }: { readonly nowMs: number; readonly file: string },
): DevelopmentRoot {
  try {
    const privateKey = createPrivateKey(pem)
    const certificate = new X509Certificate(pem)
    const notAfter = Math.floor(certificate.validToDate.getTime() / 1000)
    if (
      !certificate.checkPrivateKey(privateKey) ||
      !certificate.raw.includes(Buffer.from(ROOT_NAME))
    )
      throw new Error('expected a development root certificate and its own key')
    if (nowMs < certificate.validFromDate.getTime() || notAfter - nowMs / 1000 < ROOT_LEFT_SECONDS)
      throw new Error(
        `valid ${certificate.validFrom} to ${certificate.validTo} only; remove it, then a new root is made`,
      )
    return {
      name: ROOT_NAME,
      keyId: keyIdOf(createPublicKey(privateKey)),
      privateKey,
      certificate: new Uint8Array(certificate.raw),
      notAfter,
    }
  } catch (error) {
    throw invalidRoot(`the development root ${file} cannot be used`, error)
  }
}

/** Null when the file does not exist. */
async function readRootFile(rootFile: string): Promise<string | null> {
  try {
    const { mode } = await stat(rootFile)
    if (process.platform !== 'win32' && (mode & 0o077) !== 0)
      throw new Error(
        `expected mode 0600, got ${(mode & 0o777).toString(8)}: others can read the key`,
      )
    return await readFile(rootFile, 'utf8')
  } catch (error) {
    if (isNodeError(error) && error.code === 'ENOENT') return null
    throw invalidRoot(`cannot read the development root ${rootFile}`, error)
  }
}

/** Creates the whole file or no file. Keeps a file that another process created first. */
async function createOnce(rootFile: string, pem: string): Promise<void> {
  const draft = `${rootFile}.${randomUUID()}`
  try {
    await mkdir(dirname(rootFile), { recursive: true })
    await writeFile(draft, pem, { mode: 0o600, flag: 'wx' })
    await link(draft, rootFile)
  } catch (error) {
    if (!isNodeError(error) || error.code !== 'EEXIST')
      throw invalidRoot(`cannot create the development root ${rootFile}`, error)
  } finally {
    await rm(draft, { force: true })
  }
}

async function writeCertificate(file: string, certificate: Uint8Array): Promise<void> {
  const pem = String(new X509Certificate(certificate))
  if ((await readFile(file, 'utf8').catch(() => null)) === pem) return
  await placeFile(file, pem, { draft: `${file}.${randomUUID()}` }).catch((error: unknown) => {
    throw invalidRoot(`cannot write the development root's certificate ${file}`, error)
  })
}

function invalidRoot(message: string, cause: unknown): SoftwareNsmError {
  const reason = cause instanceof Error ? cause.message : 'unknown'
  return new SoftwareNsmError('invalid_root', `${message}: ${reason}`, { cause })
}

function isNodeError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'code' in error
}
