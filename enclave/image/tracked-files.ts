import { lstat, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BuildError } from './build-error.ts'
import type { FileTree, TreeEntry } from './file-tree.ts'
import { listLoadedSources, SourceError } from './loaded-sources.ts'
import { runCommand } from './run-command.ts'

/** Files of a git checkout, compared with its commit. */
export type CommitComparison = {
  /** The checked-out commit, hex. */
  readonly commit: string
  /** Time of the commit, Unix milliseconds. */
  readonly committedAtMs: number
  /**
   * Files that differ from the commit, that git does not know, or that git does not compare. If
   * there are any, others cannot repeat the build.
   */
  readonly uncommitted: readonly string[]
}

export type TrackedSources = CommitComparison & {
  /** The files that the enclave loads, as they are on the disk. */
  readonly files: FileTree
}

/**
 * Input of an image besides the sources: the builder with its scripts and pins, the version, and
 * npm's packages. The files that the builder imports from other folders are not included.
 */
const BUILT_BY = [
  'enclave/image',
  ':(exclude,glob)enclave/image/**/*.md',
  'package.json',
  'package-lock.json',
] as const

/**
 * Reads the files that the enclave loads (listLoadedSources) from `root`, a git checkout. Git
 * states whether a file is executable, because modes on the disk depend on the umask. Throws
 * BuildError `no_work_tree`.
 */
export async function readTrackedSources(root: string): Promise<TrackedSources> {
  const loaded = await listLoadedSources(root).catch((error: unknown) => {
    throw error instanceof SourceError ? new BuildError('no_work_tree', error.message) : error
  })
  const { modes, ...compared } = await compareWithCommit(root, loaded, BUILT_BY)
  const files = await Promise.all(
    loaded.map(async (path) => [path, await readEntry(join(root, path), modes.get(path))] as const),
  )
  return { ...compared, files: new Map(files) }
}

/**
 * Compares the files `sources` of `root`, a git checkout, and the files that the pathspecs `tools`
 * match. `modes` has git's mode of each source that it knows. Throws BuildError `no_work_tree`.
 */
export async function compareWithCommit(
  root: string,
  sources: readonly string[],
  tools: readonly string[],
): Promise<CommitComparison & { readonly modes: ReadonlyMap<string, string> }> {
  const inputs = [...sources.map((path) => `:(literal)${path}`), ...tools]
  const [listed, head, status, flags] = await Promise.all([
    git(root, ['--literal-pathspecs', 'ls-files', '--stage', '-z', '--', ...sources]),
    git(root, ['-c', 'log.showSignature=false', 'show', '--no-patch', '--format=%H %ct', 'HEAD']),
    git(root, [...STATUS, '--', ...inputs]),
    git(root, ['ls-files', '-v', '-z', '--', ...inputs]),
  ])
  const modes = new Map(splitZeros(listed).map(parseStaged))
  const [commit = '', seconds = ''] = head.trim().split(' ')
  const changed = splitZeros(status).map((line) => line.slice(STATUS_LENGTH))
  // The status shows no file that git ignores, even if the build reads it.
  const unknown = sources.filter((path) => !modes.has(path))
  return {
    modes,
    commit,
    committedAtMs: Number(seconds) * 1000,
    uncommitted: [...new Set([...changed, ...unknown, ...parseUnchecked(flags)])],
  }
}

const STATUS = ['status', '--porcelain', '-z', '--untracked-files=all', '--no-renames'] as const

/** In the output of `git status --porcelain`, two letters and a space precede each path. */
const STATUS_LENGTH = 3

/**
 * Returns the files that git does not compare with the disk, because they are marked by `git
 * update-index` with `--assume-unchanged` or `--skip-worktree`. `flags` is the output of `git
 * ls-files -v -z`.
 */
function parseUnchecked(flags: string): readonly string[] {
  return splitZeros(flags).flatMap((line) => (/^[a-zS] /.test(line) ? [line.slice(2)] : []))
}

/** Parses `mode object stage\tpath`. The path itself can contain tabs. */
function parseStaged(line: string): readonly [path: string, mode: string] {
  return [line.slice(line.indexOf('\t') + 1), line.slice(0, line.indexOf(' '))]
}

/** Reads a file. `mode` comes from git: undefined if git does not know the file. */
async function readEntry(path: string, mode: string | undefined): Promise<TreeEntry> {
  if (!(await lstat(path)).isFile())
    throw new BuildError(
      'no_work_tree',
      `${path}: expected a plain file, behind a link may be anything`,
    )
  return { kind: 'file', mode: mode === '100755' ? 0o755 : 0o644, data: await readFile(path) }
}

function splitZeros(text: string): readonly string[] {
  return text.split('\0').filter((part) => part !== '')
}

async function git(root: string, words: readonly string[]): Promise<string> {
  try {
    return (await runCommand({ file: 'git', arguments: words, folder: root })).toString('utf8')
  } catch (error) {
    if (!(error instanceof BuildError) || error.code !== 'command_failed') throw error
    throw new BuildError(
      'no_work_tree',
      `${root} is no git checkout with a commit. ${error.message}`,
    )
  }
}
