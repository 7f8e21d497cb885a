import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Maker } from '#attestation/report/evidence-page.ts'
import { VERSION } from '../runtime/version.ts'
import { bundleSaved } from './bundle.ts'
import { renderVerifier } from './page.ts'

/**
 * Bundles the verifier from this checkout. Rejects with esbuild's error when the sources are
 * broken.
 */
export async function openVerifier(): Promise<{
  readonly verifier: string
  readonly maker: Maker
}> {
  const [{ saved }, maker] = await Promise.all([bundleSaved(), readMaker()])
  return { verifier: renderVerifier(saved), maker }
}

const ROOT = join(import.meta.dirname, '../..')
const run = promisify(execFile)

/**
 * The commit is `gitHead` in package.json, or else the commit that is checked out at `root`. Null
 * when neither exists, or when the sources of the pages differ from the commit.
 */
export async function readMaker(root: string = ROOT): Promise<Maker> {
  return { version: VERSION, commit: (await readGitHead(root)) ?? (await readCheckout(root)) }
}

/** npm writes `gitHead` in packages, and deploy/gateway/Dockerfile in images. */
async function readGitHead(root: string): Promise<string | null> {
  const { gitHead } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  return typeof gitHead === 'string' && COMMIT.test(gitHead) ? gitHead : null
}

const COMMIT = /^[0-9a-f]{40,64}$/

async function readCheckout(root: string): Promise<string | null> {
  const git = async (...words: readonly string[]) =>
    (await run('git', ['--no-optional-locks', ...words], { cwd: root })).stdout.split('\n')
  try {
    // Git may find another repository, in a folder above `root`.
    const [commit = '', prefix] = await git('rev-parse', 'HEAD', '--show-prefix')
    const [changed] = await git('status', '--porcelain', '--', ...MADE_OF)
    return COMMIT.test(commit) && prefix === '' && changed === '' ? commit : null
  } catch {
    // Git is not installed, or `root` is not in a checkout.
    return null
  }
}

const MADE_OF = ['attestation', 'client', 'src/web', 'src/runtime/version.ts', 'package-lock.json']
