import { spawnSync } from 'node:child_process'
import { cpus, totalmem } from 'node:os'
import { join } from 'node:path'
import { benchGateway } from './gateway.ts'
import { benchSigning } from './signing.ts'

/** `npm run bench [-- SECTION …]`: all sections, or those named, one after the other in one run. */
const SECTIONS: Readonly<Record<string, () => void | Promise<void>>> = {
  gateway: () => benchGateway('PGlite'),
  'gateway-postgres': () => benchGateway('Postgres'),
  signing: benchSigning,
  attestation: () => runScript('attestation.ts'),
  eif: () => runScript('eif.ts'),
  bundles: () => runScript('bundles.ts'),
  client: () => runScript('client.ts'),
  encrypted: () => runScript('encrypted.ts'),
  audit: () => runScript('audit.ts'),
  history: () => runScript('history.ts'),
  'plain-chat': () => runScript('plain-chat.ts'),
  'node-scale': () => runScript('node-scale.ts'),
  anchors: () => runScript('anchors.ts'),
  replicas: () => runScript('replicas.ts'),
  packages: () => runScript('packages.ts'),
}

const wanted = process.argv.slice(2)
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
  const { status } = spawnSync(process.execPath, [join(import.meta.dirname, file)], {
    stdio: 'inherit',
  })
  if (status !== 0) process.exitCode = 1
}
