import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encodeHex } from '#attestation/bytes.ts'
import type { Release } from '#attestation/release/release.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import { releaseKeyOf } from '#attestation/release/release-signatures.ts'
import { signRelease, signReleaseList } from '#attestation/release/verify-release.ts'

/** Keys that sign releases in tests. They are public. */
export const OPERATOR_SECRET = new Uint8Array(32).fill(1)
export const STRANGER_SECRET = new Uint8Array(32).fill(2)
export const OPERATOR_KEY = encodeHex(releaseKeyOf(OPERATOR_SECRET))
export const STRANGER_KEY = encodeHex(releaseKeyOf(STRANGER_SECRET))

/** A folder for the files that a command reads and writes. */
export type ReleaseStage = {
  readonly folder: string
  path(name: string): string
  /** Writes a file and gives its path. */
  save(name: string, content: unknown): Promise<string>
  saveRelease(name: string, release: Release, secretKey?: Uint8Array): Promise<string>
  saveList(name: string, releases: readonly ReleaseEntry[], secretKey?: Uint8Array): Promise<string>
  close(): Promise<void>
}

/** Opens an empty folder. */
export async function openReleaseStage(): Promise<ReleaseStage> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-release-'))
  const path = (name: string) => join(folder, name)
  const save = async (name: string, content: unknown) => {
    await writeFile(path(name), typeof content === 'string' ? content : JSON.stringify(content))
    return path(name)
  }
  return {
    folder,
    path,
    save,
    saveRelease: (name, release, secretKey = OPERATOR_SECRET) =>
      save(name, signRelease(release, secretKey)),
    saveList: (name, releases, secretKey = OPERATOR_SECRET) =>
      save(name, signReleaseList({ issued_at: '2026-03-03T00:00:00Z', releases }, secretKey)),
    close: () => rm(folder, { recursive: true }),
  }
}
