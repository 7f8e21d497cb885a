import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { callsInPage } from '#attestation/evidence/evidence-lines.ts'
import {
  type Maker,
  makePage,
  putEvidence,
  readEvidencePage,
  writeMadeBy,
} from '#attestation/report/evidence-page.ts'
import { writeFileWhole } from '../files.ts'
import { jsonText } from '../printable.ts'

/** Opens the page that checks evidence, still without data. */
export type OpenVerifier = () => Promise<{ readonly verifier: string; readonly maker: Maker }>

export type VerifierOptions = { readonly output?: string; readonly json?: boolean }

/** Writes a page that has the evidence of these calls. */
export async function writePage(
  openVerifier: OpenVerifier,
  calls: readonly EvidenceBundle[],
): Promise<string> {
  return putEvidence(emptyPage(await openVerifier()), callsInPage(calls))
}

/** Describes the page, and writes it to a file if asked. Throws CliError. */
export async function printVerifier(
  openVerifier: OpenVerifier,
  { output, json = false }: VerifierOptions,
): Promise<void> {
  const opened = await openVerifier()
  const madeBy = writeMadeBy(opened.verifier, opened.maker)
  if (output !== undefined) await writeFileWhole(output, emptyPage(opened), PAGE_MODE)
  process.stdout.write(json ? jsonText(madeBy) : sayMadeBy(madeBy))
}

/** Every user may read a page without evidence. */
const PAGE_MODE = 0o644

function emptyPage({ verifier, maker }: Awaited<ReturnType<OpenVerifier>>): string {
  return makePage(verifier, writeMadeBy(verifier, maker))
}

function sayMadeBy({ version, commit, verifier_sha256 }: ReturnType<typeof writeMadeBy>): string {
  return `version   ${version}\ncommit    ${commit ?? 'not known'}\nverifier  SHA-256 ${verifier_sha256}\n`
}

/**
 * Describes an attacker-controlled page: its maker and its digest. Throws FormatError if the bytes
 * are not a page.
 */
export function sayPage(page: Uint8Array): string {
  const { madeBy, verifierSha256 } = readEvidencePage(page)
  const commit = madeBy.commit === null ? 'an unknown commit' : `commit ${madeBy.commit}`
  return [
    `Only the evidence in the page was read. The page says that Affidavit ${madeBy.version}, ` +
      `${commit}, made it.`,
    verifierSha256 === madeBy.verifierSha256
      ? `The SHA-256 of its verifier is ${verifierSha256}: compare it with "affidavit verifier" ` +
        'of that version before you open the page.'
      : `The page was changed: it names another digest than its own, ${verifierSha256}. Do not open it.`,
    '',
  ].join('\n')
}
