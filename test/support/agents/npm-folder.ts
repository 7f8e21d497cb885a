import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runProcess } from '../run-cli.ts'

/** A folder with packages of the registry. */
export type NpmFolder = { readonly folder: string; remove(): Promise<void> }

/** What npm writes when it cannot reach the registry. */
const NO_REGISTRY = /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT|E50\d)\b/

/**
 * Installs packages into a new folder, by name and version or alias. Returns the reason if the
 * registry cannot be reached. Throws if npm fails for another reason.
 */
export async function installPackages(
  dependencies: Readonly<Record<string, string>>,
): Promise<NpmFolder | string> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-packages-'))
  const remove = () => rm(folder, { recursive: true, force: true })
  await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies }))
  // Packages of different years demand different versions of optional peers.
  const npm = await runProcess(
    'npm',
    ['install', '--legacy-peer-deps', '--no-audit', '--no-fund'],
    {
      folder,
      // The registry, its certificates and its cache are those of the user.
      variables: { ...process.env, NODE_ENV: 'development' } as Readonly<Record<string, string>>,
    },
  )
  if (npm.code === 0) return { folder, remove }
  await remove()
  if (NO_REGISTRY.test(npm.stderr)) return 'a package registry'
  throw new Error(`npm failed: ${npm.stderr}`)
}
