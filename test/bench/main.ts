import { spawnSync } from 'node:child_process'
import { cpus, totalmem } from 'node:os'
import { join } from 'node:path'
import { benchSigning } from './signing.ts'

/**
 * `npm run bench [-- SECTION … [OPTION …]]`: runs all sections, or the named ones, one after the
 * other.
 */
const SECTIONS: Readonly<Record<string, () => void | Promise<void>>> = {
  signing: benchSigning,
  attestation: () => runScript('attestation.ts'),
  anchors: () => runScript('anchors.ts'),
  sizing: () => runScript('sizing.ts'),
  replicas: () => runScript('replicas.ts'),
  peers: () => runScript('peers.ts'),
}

/** The first option and all words after it are for the sections' own scripts. */
const words = process.argv.slice(2)
const optionsAt = words.findIndex((word) => word.startsWith('-'))
const wanted = optionsAt < 0 ? words : words.slice(0, optionsAt)
const options = optionsAt < 0 ? [] : words.slice(optionsAt)
const unknown = wanted.filter((name) => !(name in SECTIONS))
if (unknown.length > 0) {
  console.error(
    `unknown section ${unknown.join(', ')}; there are ${Object.keys(SECTIONS).join(', ')}`,
  )
  process.exit(2)
}
console.log(
  `${cpus().length} × ${cpus()[0]?.model}, ${Math.round(totalmem() / 2 ** 30)} GiB, node ${process.version}`,
)
for (const [name, run] of Object.entries(SECTIONS)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  console.log(`\n── ${name}`)
  await run()
}

function runScript(file: string): void {
  const script = join(import.meta.dirname, file)
  const { status } = spawnSync(process.execPath, [script, ...options], { stdio: 'inherit' })
  if (status !== 0) process.exitCode = 1
}
