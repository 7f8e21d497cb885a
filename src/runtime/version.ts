/** The version that our processes report, which is the package's version. */
export const VERSION = '0.1.0'
