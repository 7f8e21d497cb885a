import { BuildError } from './build-error.ts'
import { buildImage, PROJECT_ROOT } from './build-image.ts'
import { readCacheFolder } from './config.ts'
import { TreeError } from './file-tree.ts'
import { SignerError } from './image-signature.ts'
import { IMAGE_USAGE, parseImageOptions } from './options.ts'
import { formatReport } from './report.ts'
import { updatePackages } from './update-packages.ts'

/**
 * `npm run image`: see README.md in this folder. Exit codes: 0 for an image, 1 when it cannot be
 * built, 2 for wrong usage.
 */
await run(process.argv.slice(2)).catch((error: unknown) => {
  // The messages of our own errors state what to correct.
  const isOurs =
    error instanceof BuildError || error instanceof SignerError || error instanceof TreeError
  if (!isOurs) throw error
  const isUsage = error instanceof BuildError && error.code === 'options'
  process.stderr.write(`${error.message}\n${isUsage ? `\n${IMAGE_USAGE}` : ''}`)
  process.exitCode = isUsage ? 2 : 1
})

async function run(words: readonly string[]): Promise<void> {
  const command = parseImageOptions(words)
  switch (command.kind) {
    case 'help':
      process.stdout.write(IMAGE_USAGE)
      return
    case 'update_packages':
      process.stdout.write(await updatePackages({ root: PROJECT_ROOT, cache: readCacheFolder() }))
      return
    case 'build':
      process.stdout.write(formatReport(await buildImage(command.options)))
  }
}
