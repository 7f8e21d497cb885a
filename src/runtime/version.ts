/** The version that our processes report. It is the same as the version of the package. */
export const VERSION = '0.1.0'
