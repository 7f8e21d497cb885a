/**
 * What every process that a test starts gets; nothing else of the test's own environment reaches
 * it.
 */
export function childEnvironment(): Readonly<Record<string, string>> {
  const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env
  return { PATH, ...(NODE_COMPILE_CACHE === '' ? {} : { NODE_COMPILE_CACHE }) }
}
