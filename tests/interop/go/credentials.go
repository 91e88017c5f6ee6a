package main

import (
	"os"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// credentials are what STRANGER_ACCESS_KEY and STRANGER_SECRET_KEY say; with empty ones nothing is signed.
func credentials() primitive.Credentials {
	return primitive.Credentials{
		AccessKey: os.Getenv("STRANGER_ACCESS_KEY"),
		SecretKey: os.Getenv("STRANGER_SECRET_KEY"),
	}
}
