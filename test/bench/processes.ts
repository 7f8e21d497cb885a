import { readdirSync, readFileSync } from 'node:fs'

/** The unit of CPU time on Linux, sysconf(_SC_CLK_TCK): 100 on every platform of Node. */
const TICKS_PER_SECOND = 100

/**
 * CPU seconds (user + system) of each live process so far, by id; empty where there is no /proc.
 */
export function readCpuSeconds(pids: readonly number[]): ReadonlyMap<number, number> {
  return new Map(
    pids.flatMap((pid) => {
      const fields = readStat(pid)
      return fields
        ? [[pid, (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND] as const]
        : []
    }),
  )
}

/** The process and all its descendants. */
export function listTree(pid: number): readonly number[] {
  const parents = new Map<number, number>()
  for (const name of listProc()) {
    const fields = readStat(name)
    if (fields) parents.set(name, Number(fields[1]))
  }
  const tree = [pid]
  for (const known of tree)
    for (const [child, parent] of parents) if (parent === known) tree.push(child)
  return tree
}

/** A short name of a process for a report: its script or program. */
export function nameProcess(pid: number): string {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    const script = words.find((word) => /\.(ts|js)$/.test(word)) ?? words[0] ?? ''
    return script.split('/').slice(-2).join('/')
  } catch {
    return String(pid)
  }
}

function listProc(): readonly number[] {
  try {
    return readdirSync('/proc').map(Number).filter(Number.isInteger)
  } catch {
    return []
  }
}

/**
 * Fields of /proc/<pid>/stat after the parenthesised command (proc(5)): [0] state, [1] parent, [11]
 * utime, [12] stime.
 */
function readStat(pid: number): readonly string[] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return text.slice(text.lastIndexOf(')') + 2).split(' ')
  } catch {
    return null
  }
}
