import { readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { MEASURED_FOLDERS } from '../nsm/measured-source.ts'
import { BuildError } from './build-error.ts'
import type { FileTree, TreeEntry } from './file-tree.ts'
import { runCommand } from './run-command.ts'

/** The sources that an image is built from. */
export type TrackedSources = {
  /** Every file of `attestation/` and `enclave/` that git tracks, as it is on the disk now. */
  readonly files: FileTree
  /** Commit that is checked out, hex. */
  readonly commit: string
  /** When it was committed, Unix milliseconds. */
  readonly committedAtMs: number
  /**
   * Files that differ from that commit, or that git does not know, of these folders and of MANIFESTS. An image of such sources cannot
   * be rebuilt by others.
   */
  readonly uncommitted: readonly string[]
}

/** Files outside of the measured folders that an image is built by: version, and versions and digests of npm's packages. */
const MANIFESTS = ['package.json', 'package-lock.json'] as const

/**
 * Reads the measured folders below `root`, a git checkout. Modes are those that git tracks (executable or not): those of
 * the disk depend on the umask. Throws BuildError `no_work_tree`.
 */
export async function readTrackedSources(root: string): Promise<TrackedSources> {
  const [listed, head, status] = await Promise.all([
    git(root, ['ls-files', '--stage', '-z', '--', ...MEASURED_FOLDERS]),
    git(root, ['-c', 'log.showSignature=false', 'show', '--no-patch', '--format=%H %ct', 'HEAD']),
    git(root, [...STATUS, '--', ...MEASURED_FOLDERS, ...MANIFESTS]),
  ])
  const entries = splitZeros(listed).map(parseStaged)
  const files = await Promise.all(
    entries.map(async ({ path, mode }) => [path, await readEntry(join(root, path), mode)] as const),
  )
  const [commit = '', seconds = ''] = head.trim().split(' ')
  return {
    files: new Map(files),
    commit,
    committedAtMs: Number(seconds) * 1000,
    uncommitted: splitZeros(status).map((line) => line.slice(STATUS_LENGTH)),
  }
}

const STATUS = ['status', '--porcelain', '-z', '--untracked-files=all', '--no-renames'] as const

/** Two letters and a space stand before each path of `git status --porcelain`. */
const STATUS_LENGTH = 3

/** `mode object stage\tpath`; a path may have tabs of its own. */
function parseStaged(line: string): { readonly path: string; readonly mode: string } {
  return { path: line.slice(line.indexOf('\t') + 1), mode: line.slice(0, line.indexOf(' ')) }
}

async function readEntry(path: string, mode: string): Promise<TreeEntry> {
  if (mode === '120000') return { kind: 'link', target: await readlink(path) }
  const data = await readFile(path).catch(() => {
    throw new BuildError('no_work_tree', `${path} is tracked by git and cannot be read`)
  })
  return { kind: 'file', mode: mode === '100755' ? 0o755 : 0o644, data }
}

function splitZeros(text: string): readonly string[] {
  return text.split('\0').filter((part) => part !== '')
}

async function git(root: string, words: readonly string[]): Promise<string> {
  try {
    return (await runCommand({ file: 'git', arguments: words, folder: root })).toString('utf8')
  } catch (error) {
    if (!(error instanceof BuildError) || error.code !== 'command_failed') throw error
    throw new BuildError('no_work_tree', `${root} is no git checkout with a commit. ${error.message}`)
  }
}
