import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { awaitFreePort } from '#src/local/free-port.ts'
import { findMachineNode } from '../../support/machine-node.ts'
import { until } from '../../support/until.ts'

/** A public gateway on Node, for comparison. Never a dependency. */
const PACKAGE = '@portkey-ai/gateway@1.15.2'
const INSTALL_TIMEOUT_MS = 120_000
const START_TIMEOUT_MS = 30_000

export type InstalledPortkey = {
  /** The path of its program; null when it could not be installed, with the reason. */
  readonly program: string | null
  readonly reason: string
  remove(): Promise<void>
}

/** Installs it in a new folder, if the registry can be reached. */
export async function installPortkey(): Promise<InstalledPortkey> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-portkey-'))
  const remove = () => rm(folder, { recursive: true, force: true })
  const machine = findMachineNode()
  if (machine === null) return { program: null, reason: 'cannot be installed: no npm', remove }
  try {
    await writeFile(join(folder, 'package.json'), '{"private":true}')
    await promisify(execFile)(
      'npm',
      ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--prefer-offline', PACKAGE],
      {
        cwd: folder,
        env: { PATH: machine.path, HOME: process.env.HOME },
        timeout: INSTALL_TIMEOUT_MS,
      },
    )
    const program = join(folder, 'node_modules/@portkey-ai/gateway/build/start-server.js')
    return { program, reason: '', remove }
  } catch {
    return { program: null, reason: 'cannot be installed', remove }
  }
}

/** Starts it on a free port. Callers name the provider in headers. */
export async function startPortkey(
  program: string,
): Promise<{ readonly process: ChildProcess; readonly origin: string }> {
  const port = await awaitFreePort(0)
  const child = spawn(process.execPath, [program, `--port=${port}`, '--headless'], {
    env: { PATH: process.env.PATH, NODE_ENV: 'production' },
    stdio: 'ignore',
  })
  const origin = `http://127.0.0.1:${port}`
  const answers = () =>
    fetch(origin).then(
      () => true,
      () => false,
    )
  await until('Portkey answers', answers, START_TIMEOUT_MS)
  return { process: child, origin }
}

/** Headers that send a call to an OpenAI-compatible provider at this origin. */
export function portkeyHeaders(provider: string): Readonly<Record<string, string>> {
  return {
    'x-portkey-provider': 'openai',
    'x-portkey-custom-host': `${provider}/v1`,
    authorization: 'Bearer none',
  }
}
