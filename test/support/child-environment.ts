/**
 * The environment of every process that a test starts: these variables of the test's own
 * environment, and no others.
 */
export function childEnvironment(): Readonly<Record<string, string>> {
  const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env
  return { PATH, ...(NODE_COMPILE_CACHE === '' ? {} : { NODE_COMPILE_CACHE }) }
}
